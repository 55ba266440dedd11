"""A client's connection, called directly, over a transport without a socket; each row of its table."""

import asyncio
import errno
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.bundle.files.open_file import OpenFile
from headgate.config.tree import Bounds
from headgate.http.h1 import RequestLimits
from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.gateway.client_connection import (
    LINGER_TIMEOUT,
    MAX_BUFFERED,
    MAX_DISCARDED_BODY,
    MAX_REQUESTS_PER_TURN,
    ClientConnection,
)
from headgate.origin.gateway.exchange import UpstreamConnection
from headgate.origin.gateway.policy import GatewayPolicy
from headgate.origin.gateway.responses import FileResponse
from headgate.origin.gateway.states import ClientState
from headgate.origin.permits import Permit, Permits
from headgate.origin.response import FileSlice, Response
from tests.unit.origin.gateway.stub import StubTimers, StubTransport, counted, make_context, make_policy

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi"


class Delay:
    """Stands for the wait of a delayed request: `release` is called by hand."""

    last: "Delay"

    def __init__(self, accounting: Accounting, gatekeeper: Gatekeeper, release: Callable[[], None]) -> None:
        self.release = release
        self.cancelled = False
        Delay.last = self

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture(autouse=True)
def _delay_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.origin.gateway.client_connection.Delay", Delay)


def holding(seconds: float) -> GatewayPolicy:
    """Make a policy that holds the client for so long."""
    gatekeeper = Gatekeeper.embedded([Domain("default")])
    gatekeeper.obey(DelayUntil("default", b"192.0.2.1", time.time() + seconds))
    return make_policy(gatekeeper=gatekeeper)


class Harness:
    """A connection with its transports: `client` to the client, `origin` to the origin."""

    def __init__(
        self,
        policy: GatewayPolicy | None = None,
        *,
        half_open: bool = True,
        limit: int = 100,
        permits: Permits | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.context = make_context(policy, limit=limit, permits=permits, bounds=bounds)
        self.memory = self.context.buffers._requests.memory
        self.origin = StubTransport()
        self.upstream = UpstreamConnection(self.context.pool)
        self.upstream.connection_made(self.origin)
        self.context.pool.give_back(self.upstream)
        self.client = StubTransport(half_open=half_open)
        self.connection = ClientConnection(self.context)
        self.connection.connection_made(self.client)

    @property
    def state(self) -> ClientState:
        return self.connection.state

    def pass_through(self) -> "Harness":
        """Buffer neither requests nor responses."""
        self.context.buffer_requests, self.context.buffer_response = False, 0
        return self

    def receive(self, *pieces: bytes) -> "Harness":
        for piece in pieces:
            self.connection.data_received(piece)
        return self

    def respond(self, response: bytes = RESPONSE) -> "Harness":
        self.upstream.data_received(response)
        return self

    def lose(self) -> "Harness":
        self.connection.connection_lost(None)
        return self

    def expire(self) -> "Harness":
        self.context.now = max(self.context.now, self.connection.deadline)
        self.connection.expire()
        return self

    def pause(self) -> "Harness":
        self.connection.pause_writing()
        return self

    def resume(self) -> "Harness":
        self.connection.resume_writing()
        return self

    def release(self) -> "Harness":
        Delay.last.release()
        return self


def rejecting() -> Harness:
    return Harness(holding(100))


def delaying() -> Harness:
    return Harness(holding(2))


def limited(**settings: Any) -> Permits:
    limit = ConcurrencyLimit(ConcurrencySettings(**{"healthy_latency": 1.0} | settings), lambda: 0.5)
    return Permits(limit, call_later=StubTimers().call_later)


def queueing(*, queue: int = 10, policy: GatewayPolicy | None = None) -> Harness:
    """Return a harness with one permit, which another request has."""
    permits = limited(max=1, queue=queue)
    harness = Harness(policy, permits=permits)
    assert permits.take() is not None
    return harness


def end_other(harness: Harness) -> Harness:
    """End the other request."""
    assert harness.context.permits is not None
    Permit(harness.context.permits).release()
    return harness


# Requests and responses.


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_requests_are_handled_one_after_another_however_they_are_split(step: int) -> None:
    harness, data = Harness(), GET + POST + b"hello" + GET
    for start in range(0, len(data), step):
        harness.receive(data[start : start + step])
    for expected in (b"GET / ", b"POST / ", b"GET / "):
        sent = harness.origin.take()
        assert sent.startswith(expected)
        assert sent.endswith(b"\r\n\r\nhello" if expected == b"POST / " else b"\r\n\r\n")
        assert harness.respond().client.take() == RESPONSE or expected == b"POST / "
    assert harness.state is ClientState.IDLE


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET\r\n\r\n", 400),
        (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET / HTTP/3.0\r\n", 505),
    ],
)
def test_no_request_is_read_after_a_malformed_one(sent: bytes, status: int) -> None:
    harness = Harness().receive(sent, GET)
    assert harness.client.written.startswith(b"HTTP/1.1 %d " % status)
    assert harness.client.written.count(b"Connection: close\r\n") == 1
    assert (b"allow: " in harness.client.written) is (status == 405)
    assert counted(harness.context) == {"malformed": 1}
    assert harness.client.ended
    assert harness.connection.deadline == harness.context.now + LINGER_TIMEOUT
    assert harness.origin.written == b""


def test_a_delayed_request_is_forwarded_at_its_release() -> None:
    harness = delaying().receive(POST + b"hello")
    assert harness.connection.deadline == math.inf
    assert harness.origin.written == b""
    assert harness.release().origin.written.endswith(b"\r\n\r\nhello")


def test_a_client_that_leaves_ends_its_request_at_the_origin() -> None:
    assert Harness().receive(GET).lose().origin.aborted


def test_a_client_that_leaves_while_delayed_is_not_forwarded() -> None:
    harness = delaying().receive(GET).lose()
    assert Delay.last.cancelled
    harness.release()
    assert harness.origin.written == b""


def test_a_rejected_request_keeps_the_connection_unless_its_body_is_long_or_unknown() -> None:
    long_body = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (MAX_DISCARDED_BODY + 1)
    expecting = POST[:-2] + b"Expect: 100-continue\r\n\r\n"
    for head, state in (
        (GET, ClientState.IDLE),
        (POST, ClientState.DISCARDING),
        (long_body, ClientState.LINGERING),
        (CHUNKED, ClientState.LINGERING),
        (expecting, ClientState.LINGERING),
    ):
        harness = rejecting().receive(head)
        assert harness.client.written.startswith(b"HTTP/1.1 503 ")
        assert (b"Connection: close\r\n" in harness.client.written) is (state is ClientState.LINGERING)
        assert harness.state is state, head


def test_a_discarded_body_is_followed_by_the_next_request() -> None:
    harness = rejecting().receive(POST + b"he", b"llo" + GET)
    assert harness.client.written.count(b"HTTP/1.1 503 ") == 2
    assert harness.state is ClientState.IDLE


def test_a_rejected_head_request_gets_no_body() -> None:
    written = rejecting().receive(GET.replace(b"GET", b"HEAD")).client.written
    assert written.endswith(b"\r\n\r\n")
    assert b"content-length: 0" not in written


async def test_a_response_from_a_file_ends_with_the_next_request(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    source = FileSlice(OpenFile(path), 0, 7)
    here = Response(200, [(b"content-length", b"7")], b"", source)
    harness = Harness(make_policy(local=lambda _: here)).receive(GET)
    assert isinstance(harness.connection.exchange, FileResponse)
    assert harness.state is ClientState.RESPONDING
    for _ in range(3):
        await asyncio.sleep(0)
    assert harness.client.written.endswith(b"\r\n\r\ncontent")
    assert harness.state is ClientState.IDLE


def test_a_new_policy_decides_about_the_next_request() -> None:
    harness = Harness().receive(GET).respond()
    harness.context.policy = holding(100)
    assert harness.receive(GET).client.written.endswith(b".\n")
    assert harness.client.written.count(b"HTTP/1.1 503 ") == 1


async def test_a_limited_number_of_requests_is_handled_per_turn() -> None:
    harness = rejecting().receive(GET * (MAX_REQUESTS_PER_TURN + 5))
    assert harness.client.written.count(b"HTTP/1.1 503 ") == MAX_REQUESTS_PER_TURN
    assert harness.state is ClientState.WAITING
    await asyncio.sleep(0)
    assert harness.client.written.count(b"HTTP/1.1 503 ") == MAX_REQUESTS_PER_TURN + 5
    assert harness.state is ClientState.IDLE


def switched() -> Harness:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    return Harness().receive(GET[:-2] + upgrade).respond(b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade)


@pytest.mark.parametrize(
    ("drive", "status", "reason"),
    [
        (lambda: Harness().receive(GET).respond(), 200, ""),
        (lambda: Harness().receive(GET).respond(RESPONSE[:-1]).respond(b"i"), 200, ""),
        (lambda: Harness().pass_through().receive(POST + b"he").respond(), 200, ""),
        (lambda: Harness().receive(POST + b"he").lose(), 0, "client"),
        (lambda: Harness().receive(GET.replace(b"GET", b"HEAD")).respond(RESPONSE[:-2]), 200, ""),
        (lambda: Harness(make_policy(local=lambda _: Response(200, [], b"hi"))).receive(GET), 200, "local"),
        (lambda: rejecting().receive(GET), 503, "rule"),
        (lambda: rejecting().receive(GET.replace(b"GET", b"HEAD")), 503, "rule"),
        (lambda: queueing(queue=0).receive(GET), 503, "concurrency"),
        (lambda: queueing().receive(GET).expire(), 503, "concurrency"),
        (lambda: queueing().receive(GET).lose(), 0, "client"),
        (lambda: delaying().receive(GET).lose(), 0, "client"),
        (lambda: Harness().receive(GET).lose(), 0, "client"),
        (lambda: Harness().receive(GET).respond(RESPONSE[:-1]).lose(), 200, "client"),
        (lambda: Harness().receive(GET).expire(), 504, "timeout"),
        (lambda: Harness().receive(GET).respond(b"SSH\r\n\r\n"), 502, "malformed"),
        (lambda: Harness().receive(GET).respond(RESPONSE[:-1]).expire(), 200, "truncated"),
        (lambda: Harness().receive(POST, b"he").expire(), 408, "malformed"),
        (lambda: Harness().receive(CHUNKED, b"zz\r\n"), 400, "malformed"),
        (lambda: Harness().receive(b"GET\r\n\r\n"), 400, "malformed"),
        (switched, 101, "tunnel"),
    ],
)
def test_each_request_leaves_one_record_however_it_ends(drive: Callable[[], Harness], status: int, reason: str) -> None:
    harness = drive()
    [record] = harness.lose().context.records
    assert (record.status, record.reason) == (status, reason)
    assert record.bytes == len(harness.client.written.partition(b"\r\n\r\n")[2])
    assert record.end == harness.context.now
    assert (record.client, record.start) == ("192.0.2.1", 1000.0)


def test_a_record_has_the_seconds_that_the_rules_added() -> None:
    harness = delaying().receive(GET)
    harness.context.now += 2
    [record] = harness.release().respond().context.records
    assert (record.wait, record.upstream_start - record.start, record.domain) == (2, 2, "default")


# The concurrency limit.


def in_flight(harness: Harness) -> int:
    assert harness.context.permits is not None
    return harness.context.permits.limit.in_flight


def test_a_queued_request_is_forwarded_when_a_permit_is_free() -> None:
    harness = queueing().receive(POST + b"hello")
    assert harness.origin.written == b""
    assert end_other(harness).origin.written.endswith(b"\r\n\r\nhello")
    assert harness.state is ClientState.RESPONDING
    assert in_flight(harness) == 1
    harness.respond()
    assert harness.client.written.endswith(b"hi")
    assert in_flight(harness) == 0


def test_a_request_over_the_queue_is_refused_and_the_next_one_is_read() -> None:
    harness = queueing(queue=0).receive(GET, GET + GET)
    assert harness.client.written.count(b"HTTP/1.1 503 ") == 3
    assert harness.client.written.count(b'ratelimit: "concurrency";r=0;t=') == 3
    assert harness.context.permits is not None
    assert harness.context.permits.limit.state.rejected["people"]["full"] == 3
    assert harness.state is ClientState.IDLE
    assert end_other(harness).receive(GET).origin.written != b""


def test_a_client_that_leaves_while_queued_is_not_forwarded() -> None:
    harness = queueing().receive(GET).lose()
    assert end_other(harness).origin.written == b""
    assert in_flight(harness) == 0


async def test_a_request_that_waits_too_long_is_refused_and_the_next_one_is_read() -> None:
    harness = queueing().receive(GET, GET[:5])
    harness.expire()
    assert harness.client.written.startswith(b"HTTP/1.1 503 ")
    await asyncio.sleep(0)
    assert harness.state is ClientState.READING_HEAD
    assert end_other(harness).receive(GET[5:]).origin.written != b""


def test_a_delayed_request_waits_for_a_permit_after_its_release() -> None:
    harness = queueing(policy=holding(2)).receive(GET)
    assert harness.state is ClientState.DELAYED
    assert harness.release().state is ClientState.QUEUED
    assert end_other(harness).origin.written != b""


async def test_a_delayed_request_that_is_refused_is_followed_by_the_next() -> None:
    harness = queueing(queue=0, policy=holding(2)).receive(GET, GET).release()
    assert harness.client.written.count(b"HTTP/1.1 503 ") == 1
    await asyncio.sleep(0)
    assert harness.state is ClientState.DELAYED


def test_a_queued_request_is_still_answered_in_a_drain() -> None:
    harness = queueing().receive(GET)
    harness.context.draining = True
    harness.connection.drain()
    assert harness.state is ClientState.QUEUED
    assert b"Connection: close" in end_other(harness).respond().client.written


def test_the_lifeboat_answers_instead_of_a_refusal() -> None:
    saved = make_policy(lifeboat=lambda _: Response(200, [], b""))
    harness = queueing(queue=0, policy=saved).receive(GET)
    assert harness.client.written.startswith(b"HTTP/1.1 200 ")
    assert counted(harness.context) == {"lifeboat": 1}


# Limits and flow control.


def test_a_client_that_sends_too_far_ahead_is_paused() -> None:
    harness = Harness().receive(GET, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * MAX_BUFFERED)
    assert not harness.client.reading
    assert harness.respond().client.reading


def test_a_long_head_is_read_to_its_end() -> None:
    harness = Harness()
    harness.context.limits = RequestLimits(head=4 * MAX_BUFFERED)
    harness.receive(GET[:-2], b"X: " + b"a" * 2 * MAX_BUFFERED)
    assert harness.client.reading
    assert harness.receive(b"\r\n\r\n").origin.written


def test_a_client_that_does_not_read_is_sent_no_more_responses() -> None:
    harness = rejecting().pause().receive(GET, GET)
    assert harness.client.written == b""
    assert harness.resume().client.written.count(b"HTTP/1.1 503 ") == 2


def test_either_side_of_an_exchange_pauses_the_other() -> None:
    harness = Harness().pass_through().receive(POST)
    harness.upstream.pause_writing()
    assert not harness.client.reading
    harness.upstream.resume_writing()
    assert harness.client.reading
    assert not harness.pause().origin.reading
    assert harness.resume().origin.reading


async def test_a_connection_over_a_limit_is_answered_and_closed() -> None:
    harness = Harness(limit=0)
    assert harness.client.written.startswith(b"HTTP/1.1 503 ")
    assert b"Connection limit reached." in harness.client.written
    assert harness.client.closed
    assert harness.state is ClientState.CLOSED
    assert counted(harness.context) == {"limit": 1}


def test_a_websocket_becomes_a_tunnel() -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    harness = Harness().receive(GET[:-2] + upgrade + b"early")
    harness.origin.take()
    switch = b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade
    assert harness.respond(switch).client.written == switch
    assert harness.origin.written == b"early"
    [tunnel] = harness.context.registry.tunnels
    assert harness.client.protocol is tunnel.client_end
    assert harness.context.registry.connections == set()


def test_a_client_that_is_lost_when_the_origin_switches_leaves_no_tunnel() -> None:
    """With TLS, a transport reports its end to the protocol that it had then, a moment later."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    harness = Harness().receive(GET[:-2] + upgrade)
    harness.client.closed = True
    harness.respond(b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade)
    assert harness.origin.aborted
    harness.connection.connection_lost(None)
    assert not harness.context.registry.tunnels | harness.context.registry.connections


# Deadlines.


@pytest.mark.parametrize(
    ("sent", "response"),
    [
        pytest.param(b"", b"", id="nothing of the next request"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"HTTP/1.1 408 ", id="a part of its head"),
    ],
)
def test_reading_an_earlier_response_does_not_move_the_deadline_of_a_head(
    sent: bytes, response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client takes bytes of that response all the while: an idle connection stays open for it."""
    acknowledged = iter(range(100))
    monkeypatch.setattr("headgate.origin.gateway.flow_control.send_progress", lambda _: next(acknowledged))
    harness = Harness(half_open=False)
    if sent:
        harness.receive(sent)
    harness.expire()
    assert harness.client.written[: len(response) or None] == response
    assert not harness.client.aborted
    timeouts = harness.context.timeouts
    assert (harness.connection.deadline == harness.context.now + timeouts.idle) == (not sent)


def test_pieces_of_a_head_and_empty_lines_do_not_move_its_deadline() -> None:
    harness = Harness()
    first = harness.connection.deadline
    assert first == harness.context.now + harness.context.timeouts.header
    for piece in (b"\r", b"\n", b"\r\n", GET[:5], GET[5:9]):
        harness.context.now += 1
        harness.receive(piece)
        if len(piece) > 2 or piece == b"\r":
            expected = harness.connection.deadline
        assert harness.connection.deadline == expected
    assert harness.connection.deadline == first + 1


def test_each_phase_has_its_timeout() -> None:
    for harness, timeout in (
        (Harness().receive(GET), "response"),
        (Harness().receive(GET).respond(), "idle"),
        (Harness().receive(POST, b"he"), "idle"),
        (Harness().receive(GET).respond(RESPONSE[:-1]), "response_body"),
        (rejecting().receive(GET), "idle"),
    ):
        assert harness.connection.deadline == harness.context.now + getattr(harness.context.timeouts, timeout), timeout


@pytest.mark.parametrize(
    ("drive", "written"),
    [
        (lambda: Harness().receive(GET[:5]), b"HTTP/1.1 408 "),
        (lambda: Harness().receive(POST, b"he"), b"HTTP/1.1 408 "),
        (lambda: Harness().receive(GET), b"HTTP/1.1 504 "),
        (lambda: Harness(), b""),
        (lambda: Harness().pause().receive(GET), b""),
        (lambda: rejecting().receive(POST), b"HTTP/1.1 503 "),
    ],
    ids=["head", "body", "response", "idle", "client that does not read", "discarded body"],
)
def test_an_expired_connection_is_answered_or_closed(drive: Callable[[], Harness], written: bytes) -> None:
    harness = drive().expire()
    assert harness.client.written[:13] == written
    assert harness.client.aborted is (not written or b"503" in written)


def test_a_response_may_end_the_connection() -> None:
    assert Harness().receive(GET[:-2] + b"Connection: close\r\n\r\n").respond().client.closed


def test_after_a_response_before_the_end_of_its_body_no_request_is_read() -> None:
    harness = Harness().pass_through().receive(POST + b"he").respond()
    assert harness.state is ClientState.LINGERING
    assert harness.client.ended


# The end of one side.


@pytest.mark.parametrize(
    ("drive", "stays"),
    [
        (lambda: Harness(), False),
        (lambda: Harness().receive(GET), True),
        (lambda: Harness().receive(POST, b"he"), False),
        (lambda: delaying().receive(GET), False),
        (lambda: Harness().pause().receive(GET), True),
        (lambda: Harness(half_open=False).receive(GET), False),
    ],
    ids=["idle", "responding", "within a body", "delayed", "waiting", "tls"],
)
def test_a_half_closed_connection_stays_open_for_responses_under_way(drive: Callable[[], Harness], stays: bool) -> None:
    assert drive().connection.eof_received() is stays


def test_with_a_limit_a_half_closed_connection_is_that_of_a_client_that_left() -> None:
    harness = queueing()
    assert not harness.receive(GET).connection.eof_received()
    end_other(harness)
    assert harness.state is ClientState.RESPONDING
    assert not harness.connection.eof_received()


def test_a_limit_that_only_monitors_leaves_a_half_closed_connection_open() -> None:
    harness = Harness(permits=limited(max=1, mode="monitor"))
    assert harness.receive(GET).connection.eof_received()


def test_a_half_closed_connection_is_closed_after_its_response() -> None:
    harness = Harness().receive(GET)
    harness.connection.eof_received()
    assert harness.respond().client.closed


def test_an_end_within_a_head_is_400() -> None:
    harness = Harness().receive(GET[:5])
    harness.connection.eof_received()
    assert harness.client.written.startswith(b"HTTP/1.1 400 ")


# Draining.


@pytest.mark.parametrize(
    ("drive", "finish"),
    [
        (lambda: Harness(), lambda harness: harness.receive(GET).respond()),
        (lambda: Harness(), lambda harness: harness.expire()),
        (lambda: Harness().receive(GET).respond(), lambda harness: harness.receive(GET).respond()),
        (lambda: Harness().receive(GET).respond(), lambda harness: harness.expire()),
        (lambda: Harness().receive(GET), lambda harness: harness.respond()),
        (
            lambda: Harness().receive(GET).respond(RESPONSE[:-1]),
            lambda harness: harness.respond(RESPONSE[-1:]).receive(GET).respond(),
        ),
        (lambda: delaying().receive(GET), lambda harness: harness.release().respond()),
        (lambda: Harness().receive(GET[:5]), lambda harness: harness.receive(GET[5:]).respond()),
        (lambda: rejecting().receive(POST + b"he"), lambda harness: harness.receive(b"llo" + GET)),
    ],
    ids=[
        "new", "new, silent", "idle", "idle, silent", "responding", "response begun", "delayed", "reading a head",
        "discarding",
    ],
)  # fmt: skip
def test_a_draining_connection_closes_after_a_response_that_says_so(
    drive: Callable[[], Harness], finish: Callable[[Harness], Any]
) -> None:
    harness = drive()
    harness.context.draining, harness.context.idle_timeout = True, 1.0
    harness.connection.drain()
    assert not harness.client.closed
    now = harness.context.now
    finish(harness)
    seconds = harness.context.now - now
    assert (harness.client.closed, harness.client.aborted, seconds) in {(True, False, 0.0), (False, True, 1.0)}
    assert harness.client.written.count(b"Connection: close\r\n") == harness.client.closed


def test_a_client_that_reads_a_response_is_waited_for_in_a_drain_for_short_times() -> None:
    harness = Harness().receive(GET).respond()
    harness.context.draining, harness.context.idle_timeout = True, 1.0
    harness.connection.drain()
    for harness.client.buffered in (10, 9):
        assert harness.expire().connection.deadline == harness.context.now + 1.0
    assert harness.expire().client.aborted


def test_a_client_that_has_reset_its_connection_is_closed_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    harness = Harness()
    monkeypatch.setattr(harness.client, "write_eof", fail)
    harness.receive(b"GET\r\n\r\n")
    assert harness.state is ClientState.LINGERING
    assert harness.client.aborted


# Bodies that are read before the origin is asked.

EXPECTING = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("head", "body"),
    [(POST, b"hello"), (CHUNKED, b"2;x\r\nhe\r\n3\r\nllo\r\n0\r\nA: b\r\n\r\n"), (EXPECTING, b"hello")],
)
async def test_the_origin_gets_a_whole_body_with_its_length(head: bytes, body: bytes, step: int) -> None:
    permits = limited(max=1)
    harness = Harness(permits=permits).receive(head)
    assert harness.client.written == (CONTINUE if head is EXPECTING else b"")
    for start in range(0, len(body + GET), step):
        assert (harness.origin.written == b"") is (permits.limit.state.in_flight == 0) is (start < len(body))
        harness.context.now += 1
        harness.receive((body + GET)[start : start + step])
    await asyncio.sleep(0)
    sent = harness.origin.take()
    assert sent.endswith(b"\r\n\r\nhello")
    assert b"Content-Length: 5\r\n" in sent
    assert b"chunked" not in sent
    assert b"Expect" not in sent
    assert harness.respond().origin.take().startswith(b"GET / ")
    [record] = harness.context.records
    assert (record.upload, record.wait) == (record.upstream_start - record.start, 0)


def test_100_is_not_sent_after_a_part_of_the_body() -> None:
    assert Harness().receive(EXPECTING + b"he").client.written == b""


@pytest.mark.parametrize(
    ("drive", "status"),
    [
        (lambda: Harness(bounds=Bounds(buffer_memory=0, buffer_files=4)).receive(POST, b"hello"), 503),
        (lambda: Harness(bounds=Bounds(max_body=4)).receive(CHUNKED, b"5\r\n"), 413),
        (lambda: Harness().receive(CHUNKED, b"5\r\nhello\r\n", b"zz\r\n"), 400),
        (lambda: Harness().receive(POST, b"hell").expire(), 408),
    ],
)
def test_of_a_refused_body_the_origin_gets_nothing(drive: Callable[[], Harness], status: int) -> None:
    harness = drive()
    assert harness.client.written.startswith(b"HTTP/1.1 %d " % status)
    assert (harness.state, harness.origin.written) == (ClientState.LINGERING, b"")
    assert harness.context.buffers._requests.memory == harness.memory


def test_a_request_that_is_rejected_after_its_body_is_followed_by_the_next_one() -> None:
    """Or its length would be cut off from the next request."""
    harness = queueing(queue=0).receive(POST, b"hello" + GET)
    assert harness.client.written.count(b"HTTP/1.1 503 ") == 2
    assert harness.state is ClientState.IDLE
    assert harness.context.buffers._requests.memory == harness.memory


def test_a_body_is_forgotten_with_a_client_that_leaves_while_it_is_queued() -> None:
    harness = queueing().receive(POST, b"hello")
    assert harness.context.buffers._requests.memory == harness.memory - 5
    harness.lose()
    assert harness.context.buffers._requests.memory == harness.memory
