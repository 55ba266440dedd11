import pytest

from headgate.runtime.demo.measure import PhaseResult, Tally, phase_result


def tally(*seconds, offered=0, sent=0, lost=0):
    counted = Tally(offered, sent, 0, lost)
    for delay in seconds:
        counted.add_served(delay)
    return counted


def test_a_difference_has_what_was_counted_since():
    before = tally(0.1, 0.2, offered=3, sent=2, lost=1)
    after = before.plus(tally(0.1, offered=4, sent=4, lost=3))
    assert after.minus(before) == tally(0.1, offered=4, sent=4, lost=3)
    assert before == tally(0.1, 0.2, offered=3, sent=2, lost=1)
    assert after.minus(after) == Tally()


def test_two_tallies_share_nothing():
    Tally().add_served(0.1)
    assert Tally().delays == {}


@pytest.mark.parametrize(
    ("counted", "part", "p99"),
    [
        (tally(), 1.0, 0.0),
        (tally(0.1), 1.0, 0.105),
        (tally(0.1, lost=1), 0.5, 1.0),
        (tally(lost=3), 0.0, 1.0),
        (tally(*[0.1] * 99, 0.9), 1.0, 0.105),
        (tally(*[0.1] * 98, 0.2, 0.9), 1.0, 0.205),
        (tally(*[0.1] * 99, lost=1), 0.99, 0.105),
    ],
)
def test_a_lost_request_waits_until_the_deadline(counted, part, p99):
    assert counted.served_part == part
    assert counted.p99(deadline=1.0) == pytest.approx(p99)


def test_the_figures_of_a_phase_are_rates():
    everyone, people = tally(*[0.1] * 150, offered=2000), tally(0.1, 0.1, 0.1, lost=1)
    result = phase_result("calm", everyone, people, seconds=2.0, capacity=100.0, deadline=1.0, fraction=0.5)
    assert result == PhaseResult("calm", 1000.0, 100.0, 75.0, 0.75, 1000, 0.5)
