"""Permits: each way an exchange can end releases its permit once, and nothing before its end does."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings, Priority
from headgate.origin.permits import Permit, Permits, QueuedRequest
from tests.unit.origin.gateway.stub import StubTimers, turns
from tests.unit.origin.gateway.stub import parse_request as request
from tests.unit.origin.gateway.test_exchange import HEAD, POST, RESPONSE, Harness

UPGRADE = b"Connection: Upgrade", b"Upgrade: websocket"
SWITCH = b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Type: text/event-stream\r\n\r\n"


class Recorded(Permits):
    """Permits by a clock that is set by hand; records the latencies that the limit is given."""

    def __init__(self, permits: int = 1, queue: int = 10) -> None:
        self.now = 50.0
        self.timers = StubTimers()
        self.latencies: list[float] = []
        limit = ConcurrencyLimit(ConcurrencySettings(max=permits, queue=queue), lambda: 0.5)
        limit.responded = self.latencies.append  # type: ignore[method-assign]  # records
        super().__init__(limit, clock=lambda: self.now, call_later=self.timers.call_later)

    def take_one(self) -> Permit:
        permit = self.take()
        assert permit is not None
        return permit

    def wait(self, name: str = "client", priority: Priority = "people") -> "Waiting":
        waiting = Waiting(priority, name.encode(), self.now)
        self.queue(waiting)
        return waiting


class Waiting(QueuedRequest):
    """A request that remembers whether it was woken; `fails` makes that raise."""

    def __init__(self, priority: Priority, flow: bytes, since: float) -> None:
        super().__init__(priority, flow, since, self.woke)
        self.woken = 0
        self.fails = False

    def woke(self) -> None:
        self.woken += 1
        if self.fails:
            raise RuntimeError("a defect")


def started(*fields: Any, line: bytes = b"GET / HTTP/1.1", ago: float = 2.0) -> tuple[Recorded, Harness]:
    """Start an exchange with a permit, so many seconds ago."""
    permits = Recorded()
    harness = Harness(request(line, *fields), permit=permits.take_one())
    harness.exchange.start(HEAD, 1000.0)
    permits.now += ago
    return permits, harness


def lose(harness: Harness, *, reused: bool = True) -> None:
    harness.upstream.reused = reused
    harness.upstream.connection_lost(None)


ENDS: dict[str, tuple[list[float], Callable[[Harness], object]]] = {
    "a whole response": ([2.0], lambda one: one.upstream.data_received(RESPONSE)),
    "a response in parts": ([2.0], lambda one: [one.upstream.data_received(RESPONSE[n : n + 1]) for n in range(99)]),
    "a timeout": ([2.0], lambda one: one.exchange.time_out(body_awaited=False)),
    "the client has left": ([], lambda one: one.exchange.abandon()),
    "the origin closes": ([], lambda one: lose(one, reused=False)),
    "the origin sends garbage": ([], lambda one: one.upstream.data_received(b"garbage\r\n\r\n")),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_releases_the_permit_once(end: str) -> None:
    permits, harness = started()
    latencies, act = ENDS[end]
    act(harness)
    assert (permits.latencies, permits.limit.in_flight) == (latencies, 0)
    other = permits.take()
    harness.exchange.abandon()
    harness.exchange.abandon()
    assert other is not None
    assert permits.limit.in_flight == 1


@pytest.mark.parametrize("begin", [RESPONSE[:-1], STREAM, STREAM + b"data: 1\n\n"], ids=["body", "stream", "event"])
def test_a_response_under_way_holds_its_permit_whatever_it_is(begin: bytes) -> None:
    permits, harness = started()
    harness.upstream.data_received(begin)
    permits.now += 3600.0
    assert (permits.latencies, permits.limit.in_flight) == ([2.0], 1)
    harness.exchange.abandon()
    assert (permits.latencies, permits.limit.in_flight) == ([2.0], 0)


def test_a_slow_request_body_holds_its_permit_and_is_no_part_of_the_latency() -> None:
    permits, harness = started(*POST[1:], line=POST[0])
    harness.exchange.feed(b"hel")
    permits.now += 60.0
    assert permits.limit.in_flight == 1
    harness.exchange.feed(b"lo")
    permits.now += 0.5
    harness.upstream.data_received(RESPONSE)
    assert (permits.latencies, permits.limit.in_flight) == ([0.5], 0)


def test_an_open_websocket_is_no_request() -> None:
    permits, harness = started(*UPGRADE)
    harness.upstream.data_received(SWITCH)
    assert harness.client.calls[0][0] == "tunnel"
    assert (permits.latencies, permits.limit.in_flight) == ([], 0)


async def test_a_request_that_is_sent_again_keeps_its_permit() -> None:
    permits, harness = started()
    lose(harness)
    await turns()
    assert permits.limit.in_flight == 1
    harness.exchange.abandon()
    assert permits.limit.in_flight == 0


@pytest.mark.parametrize(("connect", "latencies"), [("refused", []), ("too_late", [0.0])])
async def test_an_origin_that_cannot_be_reached_releases_the_permit(connect: str, latencies: list[float]) -> None:
    permits = Recorded()
    harness = Harness(request(), pooled=False, permit=permits.take_one())
    harness.connect = getattr(harness, connect)
    harness.exchange.start(HEAD, 1000.0)
    await turns()
    assert (permits.latencies, permits.limit.in_flight) == (latencies, 0)


# Requests that wait.


def test_a_request_that_is_decided_on_at_once_is_not_woken() -> None:
    permits = Recorded(queue=0)
    permits.take_one()
    waiting = permits.wait()
    assert (waiting.is_decided, waiting.woken, waiting.permit) == (True, 0, None)
    assert waiting.retry_after >= 1.0
    permits.leave(waiting)
    assert permits.limit.in_flight == 1


def test_a_request_that_has_waited_for_too_long_is_rejected_and_counted() -> None:
    permits = Recorded()
    permits.take_one()
    waiting = permits.wait()
    permits.expire(waiting)
    assert (waiting.is_decided, waiting.woken, waiting.permit) == (True, 1, None)
    assert permits.limit.state.rejected["people"]["timeout"] == 1


def test_a_defect_of_one_request_costs_neither_its_permit_nor_the_others_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    permits = Recorded(permits=2)
    held = [permits.take_one(), permits.take_one()]
    broken, whole = permits.wait("a"), permits.wait("b")
    broken.fails = True
    permits.reconfigure(ConcurrencySettings(max=4))
    assert whole.permit is not None
    assert permits.limit.in_flight == 3
    assert "a defect" in caplog.text
    for permit in (*held, whole.permit):
        permit.release()
    assert permits.limit.in_flight == 0


def test_the_timer_wakes_the_limit_when_that_is_due() -> None:
    permits = Recorded()
    permits.take_one()
    waiting = permits.wait()
    timer = permits.timers.last
    assert timer is not None
    assert timer.seconds == pytest.approx(30.0)
    permits.wait("other")
    assert permits.timers.last is timer, "one that is set is enough"
    permits.now += 10.0
    permits.timers.fire()  # early: it is set again
    assert (waiting.is_decided, permits.timers.last.seconds) == (False, pytest.approx(20.0))
    permits.now += 20.0
    permits.timers.fire()
    assert (waiting.is_decided, waiting.permit) == (True, None)


def test_a_timer_of_an_event_loop_that_has_ended_is_set_again() -> None:
    permits = Recorded()
    permits.take_one()
    permits.wait()
    lost = permits.timers.last
    permits.now += 32.0
    late = permits.wait("late")
    assert permits.timers.last is not lost
    assert not late.is_decided
