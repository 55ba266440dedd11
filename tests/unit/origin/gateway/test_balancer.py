"""The choice between origins, and when one has failed."""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.origin.gateway.balancer import Balancer, OriginHealth


@dataclass(eq=False)
class Origin:
    health: OriginHealth


HEALTH = st.builds(
    OriginHealth,
    weight=st.integers(1, 5),
    backup=st.booleans(),
    max_in_flight=st.integers(0, 2),
    in_flight=st.integers(0, 3),
    release=st.sampled_from([0.0, 9.0, 11.0, 12.0, 13.0]),
)


def balancer(*health: OriginHealth, seed: int = 1) -> Balancer[Origin]:
    return Balancer([Origin(one) for one in health], Random(seed).random)


@given(st.lists(HEALTH, max_size=5), st.booleans(), st.randoms(use_true_random=False))
def test_the_choice_is_an_origin_with_room_and_never_a_failed_one_or_a_backup_in_place_of_a_better(
    healths: list[OriginHealth], excludes: bool, random: Random
) -> None:
    origins = [Origin(one) for one in healths]
    excluded = origins[0] if excludes and origins else None
    free = [one for one in origins if one is not excluded and not one.health.is_full]
    before = {id(one): one.health.release for one in origins}
    found = Balancer(origins, random.random).choose(10.0, excluded)
    assert (found is None) == (not free)
    if found is None:
        return
    assert found in free
    ready = [one for one in free if before[id(one)] <= 10.0]
    if not ready:
        assert before[id(found)] == min(before[id(one)] for one in free)  # the one that is released first
    elif not all(one.health.backup for one in ready):
        assert found in ready
        assert not found.health.backup
    assert not before[id(found)] or found.health.release == 20.0  # one request tries it


@pytest.mark.parametrize("weights", [(1, 1), (1, 3), (5, 3, 2)])
def test_weights_hold_among_idle_origins_and_under_load(weights: tuple[int, ...]) -> None:
    count = 10_000
    for lasting in (0, 30):  # requests that are in flight at the same time
        chooser, under_way, chosen = balancer(*(OriginHealth(weight=one) for one in weights)), [], []
        for _ in range(count):
            origin = chooser.choose(0.0)
            assert origin is not None
            chosen.append(origin)
            under_way.append(origin)
            origin.health.in_flight += 1
            if len(under_way) > lasting:
                under_way.pop(0).health.in_flight -= 1
        for origin, weight in zip(chooser.origins, weights, strict=True):
            assert chosen.count(origin) / count == pytest.approx(weight / sum(weights), abs=0.02)


def test_the_origin_with_less_in_flight_for_its_weight_is_asked() -> None:
    chooser = balancer(OriginHealth(in_flight=3), OriginHealth(in_flight=4, weight=2))
    assert {chooser.choose(0.0) for _ in range(20)} == {chooser.origins[1]}


def test_an_origin_fails_after_failures_in_its_window_until_a_success() -> None:
    health = OriginHealth(max_failures=2, failure_window=10.0)
    health.fail(100.0)
    health.fail(111.0)  # the first one is too old
    assert not health.release
    health.succeed()
    health.fail(112.0)
    assert not health.release
    health.fail(113.0)
    assert health.release == 123.0
    chooser = Balancer([Origin(health), Origin(OriginHealth(in_flight=9))], lambda: 0.0)
    assert [chooser.choose(now) is chooser.origins[0] for now in (122.0, 123.0, 124.0)] == [False, True, False]
    health.fail(125.0)  # that of the attempt: one is enough
    assert health.release == 135.0
    health.succeed()
    assert (health.release, health.failures) == (0.0, 0)
    ignoring = OriginHealth(max_failures=0)
    for _ in range(9):
        ignoring.fail(100.0)
    assert not ignoring.release
    ignoring.fail(100.0, 7.0)
    assert ignoring.release == 107.0


def test_without_a_choice_the_only_origin_is_known_at_once() -> None:
    assert balancer().only is None
    assert balancer(OriginHealth(), OriginHealth()).only is None
    assert balancer(OriginHealth(max_in_flight=1)).only is None
    chooser = balancer(OriginHealth())
    assert chooser.only is chooser.origins[0]
