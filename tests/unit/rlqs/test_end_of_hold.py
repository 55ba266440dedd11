"""The end of a hold that requests on the bus caused: which Envoy may admit the next request, and when."""

from collections.abc import Callable
from itertools import chain

import pytest

from headgate.limit import Accounting
from headgate.release import Status
from tests.unit.rlqs.envoys import START, Envoy, World

RULE = "6/min burst 6"
ALGORITHMS = ["gcra", "log"]


def hold_by_the_bus(world: World, *envoys: Envoy) -> float:
    """Let each Envoy admit a request, and gatekeepers on the bus the rest of the burst; return when the hold ends."""
    for envoy in envoys:
        assert envoy.request()
    for number in range(7):
        if not world.controls:
            now = world.now + number / 100
            world.account(Accounting("api", Status.ACCEPTED, b"c1", now, now), now)
    assert world.controls
    return world.controls[-1].release - START


def drive(world: World, until: float, *polls: tuple[Envoy, Callable[[float], bool]]) -> list[list[float]]:
    """Let Envoys have ten requests a second while their function of the time says so; return when each admitted one."""
    admitted: list[list[float]] = [[] for _ in polls]
    for step in range(round(world.time * 10) + 1, round(until * 10) + 1):
        world.time = step / 10
        world.turn()
        for times, (envoy, is_polled) in zip(admitted, polls, strict=True):
            envoy.tick()
            if is_polled(world.time) and envoy.request():
                times.append(world.time)
    return admitted


def always(_time: float) -> bool:
    return True


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("phase", [0.3, 2.5, 4.9])
def test_an_envoy_admits_a_request_at_the_end_of_a_hold_that_the_bus_caused(algorithm, phase):
    world = World(RULE, algorithm=algorithm)
    envoy = Envoy(world, phase)
    release = hold_by_the_bus(world, envoy)
    (admitted,) = drive(world, 59.0, (envoy, always))
    assert release <= admitted[0] <= release + 0.11
    # The next holds follow from its own requests.
    assert [round(at / 10) * 10 for at in admitted] == [10, 20, 30, 40, 50]
    assert all(at % 10 < 0.6 for at in admitted)


@pytest.mark.parametrize("phases", [(1.0, 2.3), (2.3, 1.0), (4.9, 0.2), (0.2, 4.9), (2.5, 2.6)])
def test_one_of_two_envoys_admits_a_request_at_the_end_of_the_hold(phases):
    world = World(RULE)
    envoys = [Envoy(world, phase, peer=f"ipv4:192.0.2.{phase}") for phase in phases]
    release = hold_by_the_bus(world, *envoys)
    admitted = sorted(chain(*drive(world, 59.0, *((envoy, always) for envoy in envoys))))
    assert release <= admitted[0] <= release + 0.11
    assert len(admitted) == 5


# The algorithm `log` adds no debt: what several gatekeepers admit before they know of each other is not paid back.
