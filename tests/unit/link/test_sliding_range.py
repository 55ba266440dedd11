from hypothesis import given
from hypothesis import strategies as st

from headgate.link.sliding_range import SlidingRange

NOW = 1_700_000_000.0


def test_without_a_value_there_is_no_range():
    assert SlidingRange().read(NOW) is None


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 30)), min_size=1, max_size=50))
def test_values_of_the_last_50_seconds_count_and_those_of_a_minute_ago_do_not(values):
    found, now = SlidingRange(), NOW
    added = []
    for value, pause in values:
        now += pause
        found.add(value, now)
        added.append((value, now))
        recent = [one for one, moment in added if moment > now - 50]
        older = [one for one, moment in added if moment > now - 60]
        extremes = found.read(now)
        assert min(older) <= extremes.least <= min(recent)
        assert max(recent) <= extremes.greatest <= max(older)


def test_a_minute_after_the_last_value_there_is_no_range():
    found = SlidingRange()
    found.add(1.0, NOW)
    assert found.read(NOW + 49) == (1.0, 1.0)
    assert found.read(NOW + 60) is None


def test_after_the_clock_was_set_back_values_of_the_future_do_not_count():
    found = SlidingRange()
    found.add(1.0, NOW)
    assert found.read(NOW - 3_600) is None
    found.add(2.0, NOW - 3_600)
    assert found.read(NOW - 3_600) == (2.0, 2.0)
