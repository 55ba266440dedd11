"""The concurrency limit: which requests start, wait or are refused."""

from collections.abc import Sequence

import pytest

from headgate.errors import ConfigurationError
from headgate.limit.concurrency import (
    ConcurrencyLimit,
    ConcurrencySettings,
    Decision,
    Outcome,
    Priority,
    Waiting,
)
from headgate.limit.concurrency.values import Mode

PEOPLE: Priority = "people"


class Origin:
    """A limit of one place that is taken, and what has been decided."""

    def __init__(self, queue: int = 128, mode: Mode = "enforce", draw: float = 0.5, places: int = 1) -> None:
        self.limit = ConcurrencyLimit(ConcurrencySettings(max=places, queue=queue, mode=mode), lambda: draw)
        self.now = 100.0
        self.names: dict[Waiting, str] = {}
        self.started: list[str] = []
        self.refused: list[str] = []
        for _ in range(places):
            assert self.limit.start(now=self.now)

    def arrive(self, name: str, priority: Priority = PEOPLE) -> None:
        """Queue a request; the first letter of its name is its flow."""
        assert not self.limit.start(now=self.now)
        request = Waiting("", priority, name[:1].encode(), self.now)
        self.names[request] = name
        self.note(self.limit.queue(request, now=self.now))

    def end(self) -> None:
        """End a request, whose place another may take."""
        self.note(self.limit.end("", 0.1, Outcome.ANSWERED, now=self.now))

    def awake(self) -> None:
        """Go on to the next wakeup."""
        self.now = self.limit.wakeup
        self.note(self.limit.awake(now=self.now))

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force."""
        self.note(self.limit.reconfigure(settings, now=self.now))

    def note(self, decisions: Sequence[Decision]) -> None:
        """Note decisions."""
        for decision in decisions:
            (self.started if decision.starts else self.refused).append(self.names[decision.request])


def test_without_overload_requests_start_in_their_order_however_long_they_have_waited() -> None:
    origin = Origin()
    for name in "abc":
        origin.arrive(name)
    origin.now += 4.9
    for _ in range(3):
        origin.end()
    assert origin.started == ["a", "b", "c"]


def test_under_overload_what_has_waited_too_long_is_refused() -> None:
    origin = Origin()
    origin.arrive("a")
    origin.awake()  # the longest interval: it is overload
    assert origin.now == 130.0
    assert origin.refused == ["a"]
    origin.arrive("b")
    origin.awake()
    assert (origin.now, origin.refused) == (pytest.approx(130.05), ["a", "b"])
    assert origin.limit.state.overloaded
    assert origin.limit.state.refused[PEOPLE] == {"filling": 0, "full": 0, "waited": 2}
    origin.awake()
    assert origin.now == pytest.approx(130.15)  # the time of a request without a queue
    assert not origin.limit.state.overloaded


def test_a_class_that_gets_nothing_is_overloaded_and_those_above_it_are_not() -> None:
    origin = Origin(places=20)
    origin.arrive("p", "prefetch")
    for name in "abcdefgh":
        origin.arrive(name)
        origin.now += 1.0
        origin.end()
        origin.note(origin.limit.awake(now=origin.now))
    assert origin.started == list("abcdefgh")
    assert origin.refused == ["p"]


def test_refusals_begin_at_half_of_the_queue_and_become_more_likely() -> None:
    refused = {}
    for draw in (0.0, 0.49, 0.51, 0.999):
        origin = Origin(queue=8, draw=draw)
        for name in "abcdefgh":
            origin.arrive(name)
        refused[draw] = "".join(origin.refused)
    # Probabilities of 1/4, 1/2 and 3/4 with five, six and seven in the queue.
    assert refused == {0.0: "fgh", 0.49: "gh", 0.51: "h", 0.999: ""}


def test_a_class_does_not_count_those_below_it() -> None:
    origin = Origin(queue=4, draw=0.0)
    for name in "abc":
        origin.arrive(name, "prefetch")
    origin.arrive("p")
    assert origin.refused == []
    origin.arrive("d", "prefetch")
    assert origin.refused == ["d"]


def test_a_full_queue_refuses_the_newest_request_of_the_longest_flow_of_the_lowest_class() -> None:
    origin = Origin(queue=4, draw=0.999)
    for name in ("a1", "a2", "b1"):
        origin.arrive(name, "prefetch")
    origin.arrive("c1", "automated")
    origin.arrive("p1")
    assert origin.refused == ["a2"]
    origin.arrive("d1", "prefetch")
    assert origin.refused == ["a2", "d1"]


@pytest.mark.parametrize("mode", ["monitor", "off"])
def test_all_that_wait_start_when_the_limit_is_no_longer_enforced(mode: Mode) -> None:
    origin = Origin()
    for name in "abc":
        origin.arrive(name)
    origin.reconfigure(ConcurrencySettings(max=1, mode=mode))
    assert sorted(origin.started) == ["a", "b", "c"]
    assert origin.limit.in_flight == 4
    assert origin.limit.state.queued == 0


def test_a_limit_that_is_off_starts_everything() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1, mode="off"), lambda: 0.5)
    assert all(limit.start(now=0.0) for _ in range(50))


def test_what_a_monitor_has_queued_does_not_start_again_when_the_limit_is_enforced() -> None:
    origin = Origin(mode="monitor")
    for name in "ab":
        origin.arrive(name)
    assert origin.started == ["a", "b"]
    origin.reconfigure(ConcurrencySettings(max=1))
    assert origin.started == ["a", "b"]
    assert (origin.limit.in_flight, origin.limit.state.queued) == (3, 0)
    for _ in range(3):
        origin.end()
    assert origin.limit.start(now=origin.now)
    assert origin.started == ["a", "b"]


def test_a_monitor_counts_what_would_have_waited_for_too_long() -> None:
    origin = Origin(mode="monitor")
    origin.arrive("a")
    origin.awake()
    assert origin.started == ["a"]
    assert origin.refused == []
    assert origin.limit.state.refused[PEOPLE]["waited"] == 1


def test_a_shorter_queue_refuses_what_does_not_fit() -> None:
    origin = Origin()
    for name in "abc":
        origin.arrive(name)
    origin.reconfigure(ConcurrencySettings(max=1, queue=1))
    assert origin.refused == ["c", "b"]
    origin.reconfigure(ConcurrencySettings(max=2, queue=1))
    assert origin.started == ["a"]


def test_refused_clients_return_at_the_rate_that_was_measured() -> None:
    origin = Origin(queue=0, draw=0.0, places=20)
    for _ in range(200):  # 20 in flight for 0.5 s each: 40 per second
        origin.now += 0.025
        origin.end()
        assert origin.limit.start(now=origin.now)
    assert origin.limit.state.duration == pytest.approx(0.5)
    seconds = [
        origin.limit.queue(Waiting("", PEOPLE, b"", origin.now), now=origin.now)[0].retry_after for _ in range(79)
    ]
    assert (seconds.count(1.0), seconds.count(2.0)) == (pytest.approx(40, abs=1), pytest.approx(39, abs=1))


def overloaded(draw: float = 0.999) -> Origin:
    """Return an origin of 20 places with an overloaded class, of which no request waits."""
    origin = Origin(draw=draw, places=20)
    origin.arrive("x")
    origin.awake()
    assert origin.refused == ["x"]
    origin.refused.clear()
    return origin


def test_under_overload_the_newest_request_starts_first_at_once() -> None:
    origin = overloaded()
    for name in "abc":
        origin.arrive(name)
    for _ in range(3):
        origin.end()
    assert origin.started == ["c", "b", "a"]


def test_under_overload_the_queue_has_as_many_places_as_start_within_twice_the_longest_wait() -> None:
    origin = overloaded()
    for number in range(40):
        origin.arrive(chr(ord("A") + number))
    assert origin.limit.state.queued == 20
    assert origin.limit.state.refused[PEOPLE]["filling"] == 20


def test_a_class_returns_at_the_rate_that_those_above_it_leave() -> None:
    origin = Origin(draw=0.0, places=20)
    for number in range(400):  # 40 end per second, and people get 30 of them
        origin.now += 0.025
        origin.arrive("r", "automated" if number % 4 == 3 else PEOPLE)
        origin.end()
    origin.reconfigure(ConcurrencySettings(max=20, queue=0))
    requests = [Waiting("", "automated", b"", origin.now) for _ in range(50)]
    seconds = [origin.limit.queue(request, now=origin.now)[0].retry_after for request in requests]
    assert seconds[-1] == pytest.approx(5.0, abs=1.0)  # not 2


def test_starts_long_ago_count_less() -> None:
    origin = Origin(draw=0.999)
    for flow in "ab":
        for _ in range(1000):
            origin.arrive(flow)
            origin.now += 0.2
            origin.end()
    origin.started.clear()
    for number in range(20):
        origin.arrive(f"{'ba'[number % 2]}{number}")
    for _ in range(10):
        origin.end()
    assert {name[0] for name in origin.started} == {"a"}


def test_a_request_that_enters_counts_from_then() -> None:
    origin = Origin(places=1)
    for _ in range(100):
        origin.now += 0.5
        origin.end()
        origin.now += 30.0
        origin.limit.enter(now=origin.now)
    assert origin.limit.state.duration == pytest.approx(0.5)


def test_a_herd_after_a_pause_does_not_return_as_one() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1, queue=0), lambda: 0.5)
    for now in range(300):
        assert limit.start(now=float(now))
        limit.end("", 1.0, Outcome.ANSWERED, now=now + 1.0)
    assert limit.start(now=400.0)
    times = [limit.queue(waiting(), now=400.001)[0].retry_after for _ in range(100)]
    assert times == [float(number) for number in range(2, 102)]


def test_a_queue_whose_last_client_leaves_has_ended() -> None:
    origin = Origin()
    origin.arrive("a")
    (request,) = origin.names
    origin.now += 29.0
    assert not origin.limit.leave(request, now=origin.now)
    origin.arrive("b")
    assert origin.limit.wakeup == origin.now + 30.0


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
    limit.enter(now=0.0)
    assert limit.in_flight == 2
    limit.queue(waiting(), now=0.0)
    assert not limit.end("api", 0.1, Outcome.ANSWERED, now=0.1)
    assert len(limit.end("api", 0.1, Outcome.ANSWERED, now=0.1)) == 1
