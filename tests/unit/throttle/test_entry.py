import pytest

from headgate.release import ASAP, NEVER
from headgate.throttle.entry import Entry


def counted(*events):
    entry = Entry(0.0)
    for event in events:
        entry.succeed(0.0) if event == "s" else entry.fail() if event == "f" else entry.take_back()
    return entry.failures


@pytest.mark.parametrize(
    ("events", "failures"),
    [("", 0), ("f", 1), ("ff", 2), ("ffs", 1), ("fss", 0), ("fsss", 0), ("fsssf", 1), ("s", 0), ("sf", 1)],
)
def test_one_more_for_a_failure_and_one_less_for_a_success(events, failures):
    assert counted(*events) == failures


@pytest.mark.parametrize("before", ["", "s", "f", "fs", "fss", "ff", "fffs", "ssss"])
def test_a_success_taken_back_is_one_failure_more_than_before_it(before):
    assert counted(*before, "s", "b") == counted(*before) + 1


def test_successes_in_parallel_taken_back_one_by_one():
    assert counted(*"fffssbb") == 5


def test_a_success_moves_a_past_backoff_to_the_present_and_no_other():
    entry = Entry(5.0, retry_after=3.0)
    entry.succeed(4.0)
    assert (entry.backoff, entry.retry_after, entry.release) == (5.0, 3.0, 5.0)
    entry.succeed(6.0)
    assert (entry.backoff, entry.retry_after, entry.release) == (6.0, 3.0, 6.0)


def test_the_release_is_the_later_horizon():
    assert Entry(1.0).release == 1.0
    assert Entry(1.0, retry_after=2.0).release == 2.0
    assert Entry(ASAP).release == ASAP


def test_a_clock_set_back_moves_every_instant_and_one_that_goes_on_none():
    entry = Entry(108.0, count=3, retry_after=130.0, failed=99.0, noted=100.0)
    assert not entry.follow_clock(100.0)
    assert entry == Entry(108.0, count=3, retry_after=130.0, failed=99.0, noted=100.0)
    assert entry.follow_clock(60.0)
    assert entry == Entry(68.0, count=3, retry_after=90.0, failed=59.0, noted=60.0)


def test_what_is_not_set_stays_so_whatever_the_clock_does():
    entry = Entry(ASAP, retry_after=NEVER, noted=100.0)
    entry.follow_clock(60.0)
    assert entry == Entry(ASAP, retry_after=NEVER, noted=60.0)


def test_to_absorb_is_to_take_the_greatest_and_the_latest():
    entry = Entry(5.0, count=2, retry_after=9.0, failed=1.0, noted=2.0)
    entry.absorb(Entry(7.0, count=1, retry_after=3.0, failed=4.0, noted=4.0))
    assert entry == Entry(7.0, count=2, retry_after=9.0, failed=4.0, noted=4.0)
    entry.absorb(Entry(6.0, count=8, retry_after=10.0))
    assert entry == Entry(7.0, count=8, retry_after=10.0, failed=4.0, noted=4.0)
