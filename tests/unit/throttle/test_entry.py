import pytest

from headgate.release import ASAP, NEVER
from headgate.throttle import Policy
from headgate.throttle.entry import (
    BUCKET,
    BUDGET,
    OPT_OUT,
    TARGET,
    Cleared,
    ClockSetBack,
    Declared,
    Dropped,
    EntryKey,
    OptedOut,
    ResponseOutcome,
    ResponseReceived,
    RetryTokens,
    ThrottleEntry,
    applied,
)


def counted(*events):
    entry = ThrottleEntry(0.0)
    for event in events:
        entry.succeed(0.0) if event == "s" else entry.fail() if event == "f" else entry.take_back()
    return entry.failures


COUNTS = [
    ("", 0), ("f", 1), ("ff", 2), ("ffs", 1), ("fss", 0), ("fsss", 0), ("fsssf", 1), ("s", 0), ("sf", 1),
]  # fmt: skip


def test_failure_raises_and_success_lowers_the_count():
    for events, failures in COUNTS:
        assert counted(*events) == failures, events


EVENTS_BEFORE = ["", "s", "f", "fs", "fss", "ff", "fffs", "ssss"]


def test_success_taken_back_adds_one_failure():
    for before in EVENTS_BEFORE:
        assert counted(*before, "s", "b") == counted(*before) + 1, before


def test_parallel_successes_are_taken_back_one_by_one():
    assert counted(*"fffssbb") == 5


def test_success_moves_a_past_backoff_to_now():
    entry = ThrottleEntry(5.0, retry_after=3.0)
    entry.succeed(4.0)
    assert (entry.backoff, entry.retry_after, entry.release) == (5.0, 3.0, 5.0)
    entry.succeed(6.0)
    assert (entry.backoff, entry.retry_after, entry.release) == (6.0, 3.0, 6.0)


def test_release_is_the_later_horizon():
    assert ThrottleEntry(1.0).release == 1.0
    assert ThrottleEntry(1.0, retry_after=2.0).release == 2.0
    assert ThrottleEntry(ASAP).release == ASAP


def test_clock_set_back_moves_every_instant():
    entry = ThrottleEntry(108.0, count=3, retry_after=130.0, failed=99.0, noted=100.0)
    assert not entry.follow_clock(100.0)
    assert entry == ThrottleEntry(108.0, count=3, retry_after=130.0, failed=99.0, noted=100.0)
    assert entry.follow_clock(60.0)
    assert entry == ThrottleEntry(68.0, count=3, retry_after=90.0, failed=59.0, noted=60.0)


def test_infinite_instants_do_not_move():
    entry = ThrottleEntry(ASAP, retry_after=NEVER, noted=100.0)
    entry.follow_clock(60.0)
    assert entry == ThrottleEntry(ASAP, retry_after=NEVER, noted=60.0)


def test_absorb_takes_the_greater_count_and_the_later_instants():
    entry = ThrottleEntry(5.0, count=2, retry_after=9.0, failed=1.0, noted=2.0)
    entry.absorb(ThrottleEntry(7.0, count=1, retry_after=3.0, failed=4.0, noted=4.0))
    assert entry == ThrottleEntry(7.0, count=2, retry_after=9.0, failed=4.0, noted=4.0)
    entry.absorb(ThrottleEntry(6.0, count=8, retry_after=10.0))
    assert entry == ThrottleEntry(7.0, count=8, retry_after=10.0, failed=4.0, noted=4.0)


ORIGIN = "http://www.example.com"
TARGET_KEY = EntryKey(TARGET, ORIGIN, "/a")
POLICY = Policy(jitter_factor=0.5)


def entry(backoff=0.0, key=TARGET_KEY, **values):
    return ThrottleEntry(backoff, kind=key.kind, origin=key.origin, path=key.path, **values)


def respond(before, outcome, *, now=100.0, key=TARGET_KEY, **values):
    return applied(ResponseReceived(now=now, outcome=outcome, **values), before, key, POLICY)


class TestClockSetBack:
    def test_clock_change_moves_an_unchanged_entry(self):
        before = entry(108.0, count=3, retry_after=130.0, noted=100.0)
        change = ClockSetBack(now=40.0, horizons=before.horizons)
        assert applied(change, before, TARGET_KEY, POLICY) == entry(48.0, count=3, retry_after=70.0, noted=40.0)
        assert applied(change, None, TARGET_KEY, POLICY) is None

    @pytest.mark.parametrize("since", [{"backoff": 109.0}, {"retry_after": 131.0}, {"noted": 101.0}])
    def test_clock_change_does_not_move_a_changed_entry(self, since):
        values = {"backoff": 108.0, "retry_after": 130.0, "noted": 100.0, **since}
        change = ClockSetBack(now=40.0, horizons=(108.0, 130.0, 100.0))
        assert applied(change, entry(**values), TARGET_KEY, POLICY) == entry(**values)


class TestResponse:
    def test_failure_is_counted_with_its_own_draw(self):
        found = respond(entry(count=2), ResponseOutcome.FAILURE, draw=0.5)
        assert found == entry(pytest.approx(100 + 0.98 * 0.75), count=3, failed=100.0, noted=100.0)

    def test_backoff_never_ends_earlier_than_where_it_was_applied_first(self):
        found = respond(entry(count=0), ResponseOutcome.FAILURE, backoff=130.0)
        assert (found.count, found.backoff) == (1, 130.0)
        assert respond(entry(140.0), ResponseOutcome.FAILURE, backoff=130.0).backoff == 140.0

    def test_failure_sent_before_the_last_one_holds_and_does_not_count(self):
        found = respond(entry(count=2, failed=99.0), ResponseOutcome.FAILURE, sent=98.0, backoff=130.0)
        assert (found.count, found.failed, found.backoff) == (2, 99.0, 130.0)
        assert respond(entry(count=2, failed=99.0), ResponseOutcome.FAILURE, sent=99.0).count == 3

    def test_success_lowers_the_count_and_drops_a_healthy_target(self):
        assert respond(entry(count=1), ResponseOutcome.SUCCESS) == entry(100.0, count=0, noted=100.0)
        assert respond(entry(count=0), ResponseOutcome.SUCCESS) is None
        assert respond(entry(110.0, count=0), ResponseOutcome.SUCCESS).count == -1
        bucket = EntryKey(BUCKET, ORIGIN, "/a")
        assert respond(entry(key=bucket, count=0), ResponseOutcome.SUCCESS, key=bucket).count == -1

    def test_success_with_retry_after_is_stored(self):
        assert respond(None, ResponseOutcome.SUCCESS, retry_after=130.0).retry_after == 130.0
        assert respond(entry(count=0), ResponseOutcome.SUCCESS, retry_after=130.0).retry_after == 130.0
        assert respond(entry(retry_after=150.0), ResponseOutcome.NEITHER, retry_after=130.0).retry_after == 150.0

    def test_malformed_body_turns_a_success_into_a_failure(self):
        assert respond(entry(count=1), ResponseOutcome.MALFORMED).count == 3
        assert respond(None, ResponseOutcome.MALFORMED).count == 1

    @pytest.mark.parametrize("outcome", [ResponseOutcome.SUCCESS, ResponseOutcome.NEITHER])
    @pytest.mark.parametrize("retry_after", [ASAP, 100.0])
    def test_success_and_neutral_response_without_a_hold_store_nothing(self, outcome, retry_after):
        assert respond(None, outcome, retry_after=retry_after) is None

    def test_expired_entry_counts_as_missing(self):
        found = respond(entry(count=5), ResponseOutcome.FAILURE, now=900.0)
        assert (found.count, found.backoff) == (1, 900.0)
        assert respond(entry(count=5), ResponseOutcome.SUCCESS, now=900.0) is None


class TestOtherChanges:
    def test_declaration_creates_a_bucket_or_raises_its_values(self):
        key = EntryKey(BUCKET, ORIGIN, "/a")
        change = Declared(now=100.0, start=ThrottleEntry(130.0, count=3))
        expected = entry(130.0, key=key, count=3, noted=100.0)
        assert applied(change, None, key, POLICY) == expected
        known = entry(120.0, key=key, count=5, retry_after=150.0)
        assert applied(change, known, key, POLICY) == entry(130.0, key=key, count=5, retry_after=150.0, noted=100.0)
        assert change.start == ThrottleEntry(130.0, count=3)

    def test_clearing_shortens_the_backoff_only(self):
        change = Cleared(now=100.0, until=105.0)
        assert applied(change, entry(130.0, retry_after=150.0), TARGET_KEY, POLICY) == entry(105.0, retry_after=150.0)
        assert applied(change, entry(103.0), TARGET_KEY, POLICY) == entry(103.0)
        assert applied(change, None, TARGET_KEY, POLICY) is None

    def test_dropping_drops(self):
        assert applied(Dropped(now=100.0), entry(130.0), TARGET_KEY, POLICY) is None

    def test_opt_out_never_expires(self):
        key = EntryKey(OPT_OUT, "www.example.com")
        found = applied(OptedOut(), None, key, POLICY)
        assert found.key == key
        assert not found.is_expired(1e300, POLICY)
        assert applied(OptedOut(), found, key, POLICY) is found


class TestRetryTokens:
    KEY = EntryKey(BUDGET, ORIGIN)

    def left(self, before, shares, full=20):
        found = applied(RetryTokens(shares=shares, full=full), before, self.KEY, POLICY)
        return None if found is None else found.count

    @pytest.mark.parametrize(
        ("before", "shares", "left"),
        [(None, -10, 10), (10, -10, 0), (5, -10, 0), (5, 1, 6), (19, 1, None), (30, 1, None)],
    )
    def test_budget_is_charged_and_earned(self, before, shares, left):
        assert self.left(None if before is None else entry(ASAP, key=self.KEY, count=before), shares) == left

    def test_full_budget_is_not_stored(self):
        assert self.left(None, 1) is None
