from dataclasses import replace

import pytest

from headgate.release import ASAP, NEVER
from headgate.throttle import Policy
from headgate.throttle.store import ThrottleEntry
from tests.quotes import quotes

POLICY = replace(Policy.draft(), jitter_factor=0.5)


def entry(backoff=0.0, **values):
    return ThrottleEntry("http://www.example.com", "/a", **{"backoff": backoff, "noted": ASAP, **values})


def values(found):
    return found.backoff, found.count, found.retry_after, found.failed, found.noted


def counted(*events):
    found = entry()
    for event in events:
        found.succeed(0.0) if event == "s" else found.fail(0.0, POLICY, 0.0)
    return found


COUNTS = [
    ("", 0), ("f", 1), ("ff", 2), ("ffs", 1), ("fss", 0), ("fsss", 0), ("fsssf", 1), ("s", 0), ("sf", 1),
]  # fmt: skip


@quotes("anti-ddos-throttling 5", "For each throttling target, a failure_count and a release_time is maintained.")
@quotes(
    "anti-ddos-throttling 5",
    "failure_count is increased by one for each failure (as defined by the backoff policy) and decreased "
    "by one (to no less than 0) for each success.",
)
def test_failure_raises_and_success_lowers_the_count():
    for events, failures in COUNTS:
        assert counted(*events).failures == failures, events


def test_success_taken_back_and_counted_as_a_failure_adds_one():
    for before in ["", "s", "f", "fs", "fss", "ff", "fffs", "ssss"]:
        found = counted(*before, "s")
        found.take_back()
        found.fail(0.0, POLICY, 0.0)
        assert found.failures == counted(*before).failures + 1, before


def test_failure_uses_its_draw_and_ends_no_backoff_earlier():
    found = entry(count=2)
    found.fail(100.0, POLICY, 0.5)
    assert (found.backoff, found.count, found.noted) == (pytest.approx(100.735), 3, 100.0)
    later = entry(140.0, count=2)
    later.fail(100.0, POLICY, 0.5)
    assert (later.count, later.backoff) == (3, 140.0)


def test_success_moves_a_past_backoff_to_now():
    found = entry(5.0, retry_after=3.0)
    found.succeed(4.0)
    assert (found.backoff, found.retry_after, found.release) == (5.0, 3.0, 5.0)
    found.succeed(6.0)
    assert (found.backoff, found.retry_after, found.release) == (6.0, 3.0, 6.0)


def test_release_is_the_later_horizon():
    assert entry(1.0).release == 1.0
    assert entry(1.0, retry_after=2.0).release == 2.0
    assert entry(ASAP).release == ASAP


def test_clock_set_back_moves_every_instant():
    found = entry(108.0, count=3, retry_after=130.0, failed=99.0, noted=100.0)
    found.follow_clock(60.0)
    assert values(found) == (68.0, 3, 90.0, 59.0, 60.0)
    endless = entry(ASAP, retry_after=NEVER, noted=100.0)
    endless.follow_clock(60.0)
    assert values(endless) == (ASAP, -1, NEVER, ASAP, 60.0)


def test_absorb_takes_the_greater_count_and_the_later_instants():
    found = entry(5.0, count=2, retry_after=9.0, failed=1.0, noted=2.0)
    found.absorb(entry(7.0, count=1, retry_after=3.0, failed=4.0, noted=4.0))
    assert values(found) == (7.0, 2, 9.0, 4.0, 4.0)
    found.absorb(entry(6.0, count=8, retry_after=10.0))
    assert values(found) == (7.0, 8, 10.0, 4.0, 4.0)
