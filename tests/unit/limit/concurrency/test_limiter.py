"""The concurrency limit: which requests start, wait or are rejected."""

from collections.abc import Sequence

import pytest

from headgate.errors import ConfigurationError
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings, Decision, Priority, Waiting
from headgate.limit.concurrency.values import Mode

PEOPLE: Priority = "people"


class Origin:
    """A limit of one permit that is taken, and what has been decided."""

    def __init__(self, queue: int = 128, mode: Mode = "enforce", permits: int = 1) -> None:
        self.limit = ConcurrencyLimit(ConcurrencySettings(max=permits, queue=queue, mode=mode), lambda: 0.0)
        self.now = 100.0
        self.requests: dict[str, Waiting] = {}
        self.decisions: list[Decision] = []
        for _ in range(permits):
            assert self.limit.start()

    def arrive(self, name: str, priority: Priority = PEOPLE) -> None:
        """Queue a request; the first letter of its name is its flow."""
        assert not self.limit.start()
        request = self.requests[name] = Waiting(priority, name[:1].encode(), self.now)
        self.note(self.limit.queue(request, now=self.now))

    def end(self) -> None:
        """End a request, whose permit another may take."""
        self.note(self.limit.end(now=self.now))

    def awake(self) -> None:
        """Go on to the next wakeup."""
        self.now = self.limit.wakeup
        self.note(self.limit.awake(now=self.now))

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force."""
        self.note(self.limit.reconfigure(settings, now=self.now))

    def note(self, decisions: Sequence[Decision]) -> None:
        """Note decisions."""
        self.decisions.extend(decisions)

    def names(self, *, starts: bool) -> str:
        """Return the names of the requests that have started or were rejected, in order."""
        names = {request: name for name, request in self.requests.items()}
        return " ".join(names[one.request] for one in self.decisions if one.starts is starts)


def test_at_most_max_requests_are_in_flight_and_others_wait_until_one_ends() -> None:
    origin = Origin(queue=1, permits=2)
    origin.arrive("a")
    assert origin.decisions == []
    origin.arrive("b")
    assert origin.names(starts=False) == "b"
    assert origin.decisions[0].retry_after >= 1.0
    origin.end()
    assert (origin.names(starts=True), origin.limit.in_flight) == ("a", 2)


def test_without_overload_requests_start_in_their_order_however_long_they_have_waited() -> None:
    origin = Origin()
    for name in "abc":
        origin.arrive(name)
    origin.now += 4.9
    for _ in range(3):
        origin.end()
    assert origin.names(starts=True) == "a b c"


def test_under_overload_what_has_waited_too_long_is_rejected() -> None:
    origin = Origin()
    origin.arrive("a")
    origin.awake()  # the longest interval: it is overload
    assert origin.now == 130.0
    assert origin.names(starts=False) == "a"
    origin.arrive("b")
    origin.awake()
    assert (origin.now, origin.names(starts=False)) == (pytest.approx(130.05), "a b")
    assert origin.limit.state.overloaded
    assert origin.limit.state.rejected[PEOPLE] == {"full": 0, "waited": 2, "timeout": 0}
    origin.awake()
    assert origin.now == pytest.approx(130.15)  # the time of a request without a queue
    assert not origin.limit.state.overloaded


def test_a_class_that_gets_nothing_is_overloaded_and_those_above_it_are_not() -> None:
    origin = Origin(permits=20)
    origin.arrive("p", "prefetch")
    for number in range(320):  # ten end per second
        origin.arrive(f"a{number}")
        origin.now += 0.1
        origin.end()
    assert len(origin.names(starts=True).split()) == 320
    assert origin.names(starts=False) == "p"


def test_a_request_whose_caller_waits_no_longer_is_rejected_and_counted() -> None:
    origin = Origin()
    origin.arrive("a")
    origin.note(origin.limit.expire(origin.requests["a"], now=origin.now))
    assert origin.names(starts=False) == "a"
    assert origin.limit.state.rejected[PEOPLE]["timeout"] == 1
    assert not origin.limit.expire(origin.requests["a"], now=origin.now)
    assert not origin.limit.leave(origin.requests["a"], now=origin.now)


def test_a_queue_whose_last_client_leaves_has_ended() -> None:
    origin = Origin()
    origin.arrive("a")
    origin.now += 29.0
    assert not origin.limit.leave(origin.requests["a"], now=origin.now)
    origin.arrive("b")
    assert origin.limit.wakeup == origin.now + 30.0


@pytest.mark.parametrize("mode", ["monitor", "off"])
def test_all_that_wait_start_when_the_limit_is_no_longer_enforced(mode: Mode) -> None:
    origin = Origin()
    for name in "abc":
        origin.arrive(name)
    origin.reconfigure(ConcurrencySettings(max=1, mode=mode))
    assert origin.names(starts=True) == "a b c"
    assert (origin.limit.in_flight, origin.limit.state.queued) == (4, 0)


def test_a_limit_that_is_off_starts_everything() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1, mode="off"), lambda: 0.5)
    assert all(limit.start() for _ in range(50))


def test_monitor_starts_everything_and_counts_what_would_be_rejected() -> None:
    origin = Origin(queue=1, mode="monitor")
    for name in "abc":
        origin.arrive(name)
    assert origin.names(starts=True) == "a b c"
    assert (origin.limit.in_flight, origin.limit.state.queued) == (4, 0)
    assert origin.limit.state.rejected[PEOPLE] == {"full": 2, "waited": 0, "timeout": 0}
    origin.reconfigure(ConcurrencySettings(max=1))
    for _ in range(4):
        origin.end()
    assert origin.limit.start()
    assert len(origin.decisions) == 3


def test_a_shorter_queue_rejects_what_does_not_fit() -> None:
    origin = Origin()
    for name in "abc":
        origin.arrive(name, "prefetch" if name == "b" else PEOPLE)
    origin.reconfigure(ConcurrencySettings(max=1, queue=1))
    assert origin.names(starts=False).split()[0] == "b"
    assert len(origin.names(starts=False).split()) == 2
    origin.reconfigure(ConcurrencySettings(max=2, queue=1))
    assert len(origin.names(starts=True)) == 1


def test_rejected_clients_return_at_the_rate_at_which_requests_end_while_others_wait() -> None:
    origin = Origin(queue=0, permits=20)
    for number in range(400):  # 40 per second
        origin.arrive(f"{number % 10}{number}")
        origin.now += 0.025
        origin.end()
        assert origin.limit.start()
    assert origin.limit.state.capacity == pytest.approx(40.0, rel=0.01)
    origin.limit._returns._served[0] = 0.0  # those that were rejected until now
    origin.decisions.clear()
    for number in range(79):
        origin.arrive(chr(1000 + number))
    seconds = [decision.retry_after for decision in origin.decisions]
    assert (seconds.count(1.0), seconds.count(2.0)) == (pytest.approx(40, abs=1), pytest.approx(39, abs=1))


def test_a_rate_at_which_no_request_waits_is_not_the_capacity() -> None:
    origin = Origin(permits=2)
    for _ in range(100):
        origin.now += 0.5
        origin.end()
        assert origin.limit.start()
    assert origin.limit.state.capacity == 0.0
    for number in range(30):  # after a pause
        origin.now += 100.0 if number == 0 else 0.1
        origin.arrive(f"a{number}")
        origin.end()
    assert origin.limit.state.capacity == pytest.approx(10.0, rel=0.15)


def test_a_learned_limit_follows_latencies_and_keeps_what_it_learned() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(healthy_latency=0.2), lambda: 0.5)
    assert limit.state.limit == 4.0
    for _ in range(4):
        assert limit.start()
    assert not limit.start()
    for _ in range(10):
        limit.responded(0.1)
    assert (limit.state.limit, limit.state.latency) == (8.0, pytest.approx(0.1))
    assert limit.start()
    limit.reconfigure(ConcurrencySettings(max=5), now=1.0)
    assert (limit.state.limit, limit.state.latency) == (5.0, 0.0)
    limit.responded(100.0)
    limit.reconfigure(ConcurrencySettings(healthy_latency=0.2), now=1.0)
    assert limit.state.limit == 8.0


HEALTHY = (
    "concurrency: healthy_latency must be the seconds of a healthy response, such as 0.2; "
    "a learned limit needs it; got "
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max": 0}, "concurrency: max must be from 1 to 1000000, got 0"),
        ({"queue": -1}, "concurrency: queue must be from 0 to 1000000, got -1"),
        ({"ceiling": 1_000_001}, "concurrency: ceiling must be from 1 to 1000000, got 1000001"),
        ({}, f"{HEALTHY}0.0"),
        ({"healthy_latency": -1.0}, f"{HEALTHY}-1.0"),
        ({"healthy_latency": float("nan")}, f"{HEALTHY}nan"),
    ],
)
def test_invalid_settings_are_named(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ConcurrencySettings(**values)  # type: ignore[arg-type]  # of several types
    assert str(caught.value) == message
