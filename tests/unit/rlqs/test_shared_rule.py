"""What several Envoys admit together, compared with one gatekeeper that decides on every request."""

from collections.abc import Callable, Sequence

import pytest

from headgate.limit import Gatekeeper, Rule
from headgate.limit.history import OfflineGate
from headgate.release import Status
from tests.unit.rlqs.envoys import START, Envoy, World

Load = Callable[[float], float]
"""Requests per second at a time."""

FAST = ("500/s burst 50",)


def drive(world: World, envoys: Sequence[Envoy], loads: Sequence[Load], until: float, step: float = 0.004):
    """Send requests of one client to Envoys until a time; return the admitted requests of each by second."""
    admitted = [[0] * (int(until) + 1) for _ in envoys]
    due = [world.time] * len(envoys)
    while world.time < until:
        if world.is_serving:
            world.turn()
        for index, (envoy, load) in enumerate(zip(envoys, loads, strict=True)):
            envoy.tick()
            rate = load(world.time)
            if rate <= 0:
                due[index] = world.time
            while rate > 0 and due[index] <= world.time:
                admitted[index][int(world.time)] += envoy.request()
                due[index] += 1 / rate
        world.time += step
    return admitted


def steady(rate: float) -> Load:
    return lambda _time: rate


@pytest.mark.parametrize("phases", [(1.0, 3.5), (1.0, 1.001), (4.9, 4.8), (4.8, 4.9), (0.1, 2.0), (2.5, 5.0)])
def test_two_envoys_share_a_fast_rule_while_their_loads_change(phases):
    """The smaller load is admitted from its first second; at 24 s the loads are swapped."""
    world = World(*FAST)
    loads = [lambda time: 600.0 if time < 24 else 200.0, lambda time: 600.0 if time >= 24 else 200.0 * (time >= 12)]
    one, two = drive(world, [Envoy(world, phase) for phase in phases], loads, 40.0)
    both = [sum(second) for second in zip(one, two, strict=True)]
    assert min(two[12:24]) >= 150
    assert max(both[13:24]) <= 520
    assert all(455 <= second <= 520 for second in both[22:24])
    assert all(440 <= second <= 520 for second in both[32:40])


@pytest.mark.parametrize(
    ("begin", "phases"), [(2.0, (1.0, 2.1)), (2.0, (2.1, 4.9)), (2.0, (4.0, 4.0)), (4.0, (0.3, 2.1)), (4.0, (3.0, 0.3))]
)
def test_a_load_that_begins_between_two_reports_is_not_cut_to_their_mean(begin, phases):
    """Both buckets exist since a single request."""
    world = World(*FAST)
    envoys = [Envoy(world, phase) for phase in phases]
    assert all(envoy.request() for envoy in envoys)
    loads = [lambda time: 600.0 * (time >= begin), lambda time: 200.0 * (time >= begin)]
    larger, smaller = drive(world, envoys, loads, 22.0)
    assert min(smaller[int(begin) + 1 : 12]) >= 150
    assert min(smaller[12:22]) >= 180
    assert all(400 <= sum(second) <= 520 for second in zip(larger[12:22], smaller[12:22], strict=True))


@pytest.mark.parametrize(
    ("algorithm", "rules", "rates", "seconds"),
    [
        ("log", ["6/min burst 3"], [2.0], 120),
        ("gcra", ["6/min burst 3"], [2.0, 2.0], 120),
        ("log", ["6/min burst 3"], [1.0, 1.0, 1.0, 1.0], 200),
        ("gcra", ["10/h burst 4"], [0.05, 0.05], 1500),
        ("log", ["1/min burst 5"], [0.1, 0.1, 0.1], 600),
        ("gcra", ["1/s burst 5"], [3.0], 60),
        ("log", ["1/s burst 5"], [3.0, 3.0], 60),
        ("log", ["10/s burst 20"], [30.0], 60),
        ("gcra", ["10/s burst 20"], [30.0, 30.0], 60),
        ("gcra", ["10/s burst 20"], [4.5, 4.5], 60),
        ("log", ["10/s burst 20", "60/min burst 40"], [30.0], 60),
        ("gcra", ["10/s burst 20", "60/min burst 40"], [30.0, 5.0], 60),
    ],
)
def test_envoys_admit_together_what_one_gatekeeper_would(algorithm, rules, rates, seconds):
    world = World(*rules, algorithm=algorithm)
    envoys = [Envoy(world, 1.0 + index * 1.3) for index in range(len(rates))]
    admitted = sum(map(sum, drive(world, envoys, [steady(rate) for rate in rates], seconds, 0.01)))
    # A gatekeeper that is told of each hold at once, and rejects what is held.
    alone = OfflineGate(tuple(map(Rule.parse, rules)), algorithm, max_delay=0.0)
    times = [START + number / sum(rates) for number in range(int(sum(rates) * seconds))]
    expected = len(times) - alone.judge_all(times).rejected
    # An Envoy admits the first request for each bucket.
    assert 0.85 * expected - 1 <= admitted <= 1.05 * expected + len(rates)


def test_the_rule_holds_again_after_the_master_was_killed():
    world = World(*FAST)
    envoys = [Envoy(world, 1.0), Envoy(world, 3.5)]
    loads = [steady(600), steady(200)]
    drive(world, envoys, loads, 20.0)
    world.is_serving = False
    for envoy in envoys:
        envoy.disconnect()
    down = drive(world, envoys, loads, 35.0)
    # The assignments live on for ten seconds after the last report, and then all requests pass.
    assert [one[32:35] for one in down] == [[600] * 3, [200] * 3]
    world.is_serving = True
    world.restart()
    larger, smaller = drive(world, envoys, loads, 60.0)
    assert all(440 <= sum(second) <= 520 for second in zip(larger[41:60], smaller[41:60], strict=True))


class OnBus:
    """Requests to a gatekeeper on the bus of a world, which obeys each control at once."""

    def __init__(self, world: World, rate: float) -> None:
        self.admitted: list[float] = []
        self._world, self._rate, self._due = world, rate, world.time
        self._gatekeeper = Gatekeeper(world.account, max_delay=0.0)

    def tick(self) -> None:
        """Decide on the requests that are due."""
        while self._due <= self._world.time:
            for control in self._world.controls:
                self._gatekeeper.obey(control)
            self._world.controls.clear()
            if self._gatekeeper.admit("api", b"c1", now=self._world.now).status is Status.ACCEPTED:
                self.admitted.append(self._world.time)
            self._due += 1 / self._rate


@pytest.mark.parametrize(
    ("rule", "at_envoy", "on_bus", "algorithm"),
    [
        ("500/s burst 50", 600, 300, "gcra"),
        ("500/s burst 50", 300, 800, "gcra"),
        ("10/s burst 20", 30, 5, "gcra"),
        ("10/s burst 20", 30, 30, "gcra"),
        ("1/s burst 5", 3, 3, "gcra"),
        ("6/min burst 3", 2, 2, "gcra"),
        ("6/min burst 3", 2, 2, "log"),
    ],
)
def test_an_envoy_leaves_what_a_gatekeeper_uses(rule, at_envoy, on_bus, algorithm):
    world = World(rule, algorithm=algorithm)
    envoy, gatekeeper = Envoy(world, 1.0), OnBus(world, on_bus)
    tick = envoy.tick
    envoy.tick = lambda: (gatekeeper.tick(), tick())
    (admitted,) = drive(world, [envoy], [steady(at_envoy)], 100.0)
    together = sum(admitted[20:100]) + sum(20 <= at < 100 for at in gatekeeper.admitted)
    rate = 1 / world.master.domains["api"].rules[0].interval
    assert 0.93 * 80 * rate <= together <= 1.03 * 80 * rate + 2
