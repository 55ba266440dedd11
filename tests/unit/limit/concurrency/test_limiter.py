"""The concurrency limit: which requests start, wait or are refused."""

import pytest

from headgate.errors import ConfigurationError
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings, Decision, Outcome, Waiting


def waiting(flow: bytes = b"client", *, since: float = 0.0) -> Waiting:
    return Waiting("api", "people", flow, since)


def test_at_most_max_requests_are_in_flight_and_others_wait_until_one_ends() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=2, queue=1), lambda: 0.5)
    assert [limit.start(now=0.0) for _ in range(3)] == [True, True, False]
    assert limit.queue(request := waiting(), now=0.0) == ()
    (decision,) = limit.queue(other := waiting(), now=0.0)
    assert (decision.request, decision.starts) == (other, False)
    assert decision.retry_after > 0
    (decision,) = limit.end("api", 0.1, Outcome.ANSWERED, now=0.1)
    assert (decision.request, decision.starts) == (request, True)
    assert limit.in_flight == 2


def test_a_clock_may_stand_still_for_many_requests() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=2), lambda: 0.5)
    for now in (0.0, 5.0):
        for _ in range(300):
            assert limit.start(now=now)
            assert limit.end("api", 0.0, Outcome.ANSWERED, now=now) == ()
    assert limit.in_flight == 0


def test_monitor_starts_everything_and_counts_what_would_wait_or_be_refused() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1, queue=1, mode="monitor"), lambda: 0.5)
    assert limit.start(now=0.0)
    for request in (waiting(b"first"), waiting(b"second"), waiting(b"third")):
        assert not limit.start(now=0.0)
        assert list(limit.queue(request, now=0.0)) == [Decision(request, starts=True)]
    assert (limit.in_flight, limit.state.queued) == (4, 1)
    assert limit.state.refused["people"] == {"filling": 0, "full": 2, "waited": 0}
    for number in range(3):
        assert limit.end("api", 0.1, Outcome.ANSWERED, now=0.1 + number) == ()
    assert limit.state.started["people"] == 1
    assert (limit.in_flight, limit.state.queued) == (1, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max": 0}, "concurrency: max must be from 1 to 1000000, got 0"),
        ({"floor": 5, "ceiling": 4}, "concurrency: floor must be at most ceiling (4), got 5"),
        ({"queue_target": float("nan")}, "concurrency: queue_target must be a number of seconds, 0 or more, got nan"),
    ],
)
def test_invalid_settings_are_named(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ConcurrencySettings(**values)
    assert str(caught.value) == message


def test_a_request_that_the_origin_has_already_is_counted_above_the_limit() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1), lambda: 0.5)
    assert limit.start(now=0.0)
    limit.enter()
    assert limit.in_flight == 2
    limit.queue(waiting(), now=0.0)
    assert not limit.end("api", 0.1, Outcome.ANSWERED, now=0.1)
    assert len(limit.end("api", 0.1, Outcome.ANSWERED, now=0.1)) == 1


def test_other_settings_keep_the_requests_in_flight_and_start_those_that_wait() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1), lambda: 0.5)
    assert limit.start(now=0.0)
    requests = [waiting(), waiting(), waiting()]
    for request in requests:
        limit.queue(request, now=0.0)
    (decision,) = limit.reconfigure(ConcurrencySettings(max=2), now=1.0)
    assert decision.starts
    assert (limit.in_flight, limit.limit) == (2, 2.0)
    assert len(limit.reconfigure(ConcurrencySettings(max=2, mode="off"), now=1.0)) == 2
    assert (limit.in_flight, limit.state.queued) == (4, 0)
