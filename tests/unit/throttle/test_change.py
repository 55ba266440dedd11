import pytest

from headgate.release import ASAP
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
    Entry,
    Key,
    OptedOut,
    Outcome,
    Response,
    RetryTokens,
    applied,
)

ORIGIN = "http://www.example.com"
KEY = Key(TARGET, ORIGIN, "/a")
POLICY = Policy(jitter_factor=0.5)


def entry(backoff=0.0, key=KEY, **values):
    return Entry(backoff, kind=key.kind, origin=key.origin, path=key.path, **values)


def respond(before, outcome, *, now=100.0, key=KEY, **values):
    return applied(Response(now=now, outcome=outcome, **values), before, key, POLICY)


class TestClockSetBack:
    def test_an_entry_with_the_same_horizons_follows(self):
        before = entry(108.0, count=3, retry_after=130.0, noted=100.0)
        change = ClockSetBack(now=40.0, horizons=before.horizons)
        assert applied(change, before, KEY, POLICY) == entry(48.0, count=3, retry_after=70.0, noted=40.0)
        assert applied(change, None, KEY, POLICY) is None

    @pytest.mark.parametrize("since", [{"backoff": 109.0}, {"retry_after": 131.0}, {"noted": 101.0}])
    def test_one_that_was_changed_since_does_not(self, since):
        values = {"backoff": 108.0, "retry_after": 130.0, "noted": 100.0, **since}
        change = ClockSetBack(now=40.0, horizons=(108.0, 130.0, 100.0))
        assert applied(change, entry(**values), KEY, POLICY) == entry(**values)


class TestResponse:
    def test_a_failure_is_counted_and_backed_off_from_with_its_own_draw(self):
        found = respond(entry(count=2), Outcome.FAILURE, draw=0.5)
        assert found == entry(pytest.approx(100 + 0.98 * 0.75), count=3, failed=100.0, noted=100.0)

    def test_a_backoff_never_ends_earlier_than_where_it_was_applied_first(self):
        found = respond(entry(count=0), Outcome.FAILURE, backoff=130.0)
        assert (found.count, found.backoff) == (1, 130.0)
        assert respond(entry(140.0), Outcome.FAILURE, backoff=130.0).backoff == 140.0

    def test_one_that_was_sent_before_the_last_failure_does_not_count_but_holds_as_it_did_first(self):
        found = respond(entry(count=2, failed=99.0), Outcome.FAILURE, sent=98.0, backoff=130.0)
        assert (found.count, found.failed, found.backoff) == (2, 99.0, 130.0)
        assert respond(entry(count=2, failed=99.0), Outcome.FAILURE, sent=99.0).count == 3

    def test_a_success_lowers_the_count_and_drops_a_target_that_has_none(self):
        assert respond(entry(count=1), Outcome.SUCCESS) == entry(100.0, count=0, noted=100.0)
        assert respond(entry(count=0), Outcome.SUCCESS) is None
        assert respond(entry(110.0, count=0), Outcome.SUCCESS).count == -1
        bucket = Key(BUCKET, ORIGIN, "/a")
        assert respond(entry(key=bucket, count=0), Outcome.SUCCESS, key=bucket).count == -1

    def test_a_success_that_is_to_be_retried_later_is_kept(self):
        assert respond(None, Outcome.SUCCESS, retry_after=130.0).retry_after == 130.0
        assert respond(entry(count=0), Outcome.SUCCESS, retry_after=130.0).retry_after == 130.0
        assert respond(entry(retry_after=150.0), Outcome.NEITHER, retry_after=130.0).retry_after == 150.0

    def test_a_malformed_body_makes_a_failure_of_the_success_before(self):
        assert respond(entry(count=1), Outcome.MALFORMED).count == 3
        assert respond(None, Outcome.MALFORMED).count == 1

    @pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.NEITHER])
    @pytest.mark.parametrize("retry_after", [ASAP, 100.0])
    def test_what_makes_no_entry_stores_nothing(self, outcome, retry_after):
        assert respond(None, outcome, retry_after=retry_after) is None

    def test_what_is_forgotten_counts_as_not_stored(self):
        found = respond(entry(count=5), Outcome.FAILURE, now=900.0)
        assert (found.count, found.backoff) == (1, 900.0)
        assert respond(entry(count=5), Outcome.SUCCESS, now=900.0) is None


class TestOthers:
    def test_a_bucket_starts_as_declared_or_takes_the_greater_values(self):
        key = Key(BUCKET, ORIGIN, "/a")
        change = Declared(now=100.0, start=Entry(130.0, count=3))
        expected = entry(130.0, key=key, count=3, noted=100.0)
        assert applied(change, None, key, POLICY) == expected
        known = entry(120.0, key=key, count=5, retry_after=150.0)
        assert applied(change, known, key, POLICY) == entry(130.0, key=key, count=5, retry_after=150.0, noted=100.0)
        assert change.start == Entry(130.0, count=3)

    def test_clearing_shortens_a_backoff_alone(self):
        change = Cleared(now=100.0, until=105.0)
        assert applied(change, entry(130.0, retry_after=150.0), KEY, POLICY) == entry(105.0, retry_after=150.0)
        assert applied(change, entry(103.0), KEY, POLICY) == entry(103.0)
        assert applied(change, None, KEY, POLICY) is None

    def test_dropping(self):
        assert applied(Dropped(now=100.0), entry(130.0), KEY, POLICY) is None

    def test_opting_out_is_for_good(self):
        key = Key(OPT_OUT, "www.example.com")
        found = applied(OptedOut(), None, key, POLICY)
        assert found.key == key
        assert not found.is_spent(1e300, POLICY)
        assert applied(OptedOut(), found, key, POLICY) is found


class TestRetryTokens:
    KEY = Key(BUDGET, ORIGIN)

    def left(self, before, shares, full=20):
        found = applied(RetryTokens(shares=shares, full=full), before, self.KEY, POLICY)
        return None if found is None else found.count

    @pytest.mark.parametrize(
        ("before", "shares", "left"),
        [(None, -10, 10), (10, -10, 0), (5, -10, 0), (5, 1, 6), (19, 1, None), (30, 1, None)],
    )
    def test_they_are_charged_and_earned(self, before, shares, left):
        assert self.left(None if before is None else entry(ASAP, key=self.KEY, count=before), shares) == left

    def test_a_full_budget_is_not_stored(self):
        assert self.left(None, 1) is None
