import pytest

from headgate.runtime.demo.measure import Tally
from headgate.runtime.demo.plan import PHASES
from headgate.runtime.demo.show import difference, new_frame, published_fraction


def entry(name, fraction, demand=0.0):
    return {"user_agent": name, "published": fraction, "demand": demand, "reason": "settled"}


@pytest.mark.parametrize(
    ("state", "fraction"),
    [
        ({}, None),
        ({"advice": []}, None),
        ({"advice": [entry("*", 0.25)]}, 0.25),
        ({"advice": [entry("*", 0.2, 300.0), entry("prefetch-proxy", 0.4, 100.0)]}, 0.25),
        ({"advice": [entry("*", 0.2), entry("prefetch-proxy", 0.4)]}, 0.3),
    ],
)
def test_the_fraction_is_that_of_all_automated_traffic(state, fraction):
    assert published_fraction(state) == (None if fraction is None else pytest.approx(fraction))


def test_a_frame_has_rates_and_the_state_of_the_gate():
    before = {"people": Tally(10, 10, 9, 1), "agents": Tally(100, 5, 5, 95)}
    after = {"people": Tally(20, 20, 17, 3), "agents": Tally(200, 6, 6, 194)}
    state = {"concurrency": {"limit": 15.0, "queued": 3}, "advice": [entry("*", 0.5)]}
    frame = new_frame(PHASES[0], difference(after, before), state, since=0.5)
    assert (frame.offered, frame.sent, frame.served, frame.people_served) == (220, 22, 18, 0.8)
    assert (frame.limit, frame.queued, frame.fraction) == (15.0, 3, 0.5)
    bare = new_frame(PHASES[0], difference(after, before), {"concurrency": None}, since=0.5)
    assert (bare.limit, bare.queued, bare.fraction) == (None, 0, None)
