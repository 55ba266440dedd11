"""An exchange between a client and an origin without sockets; each row of its table."""

import asyncio
import errno
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headgate.errors import ProtocolError
from headgate.http.h1 import RequestHead
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.gateway.buffer import BufferSpace, SpooledBuffer
from headgate.origin.gateway.exchange import (
    IDLE_TIMEOUT,
    MAX_HELD_BODY,
    MAX_IDLE_CONNECTIONS,
    ProxiedExchange,
    UpstreamConnection,
    UpstreamPool,
    UpstreamState,
)
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.permits import Permit, Permits
from tests.unit.origin.gateway.stub import StubTransport, counted, make_context, make_pool, turns, without_id
from tests.unit.origin.gateway.stub import parse_request as request

HEAD = b"forwarded head\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nhi"
POST = b"POST / HTTP/1.1", b"Content-Length: 5"


class Client:
    """Stands for the client's connection, and records the calls of the exchange."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.written = b""
        self.renewed = 0
        self.buffer: SpooledBuffer | None = None

    def renew_deadline(self) -> None:
        self.renewed += 1

    def write(self, data: bytes) -> None:
        self.written += without_id(data)

    def complete(self, message: bytes = b"", *, keep: bool = True, unread: bool = False) -> None:
        self.calls.append(("whole", without_id(message)) if message else ("complete", keep, unread))

    def fail(self, error: ProtocolError, reason: str, *, unread: bool) -> None:
        self.calls.append(("fail", error.status, unread, reason))

    def abort(self, reason: str, *, reset: bool = False) -> None:
        self.calls.append(("abort", reason, reset))

    def set_upstream_slow(self, *, slow: bool) -> None:
        self.calls.append("pause" if slow else "resume")

    def response_buffer(self) -> SpooledBuffer | None:
        return self.buffer

    def become_tunnel(self, upstream: Any, greeting: bytes) -> None:
        self.calls.append(("tunnel", without_id(greeting)))


class Harness:
    """An exchange with its client; `origin` is the transport to the origin once there is a connection."""

    def __init__(
        self, request: RequestHead, *, pooled: bool = True, reused: bool = True, permit: Permit | None = None
    ) -> None:
        self.context = make_context()
        self.client = Client()
        self.space = BufferSpace("response", 1000, 1000, self.context.counters, lambda _: None)
        self.record = RequestRecord("192.0.2.1", 0.0, self.context.now, request)
        self.origin = StubTransport()
        self.upstream = UpstreamConnection(self.context.pool)
        self.upstream.connection_made(self.origin)
        self.upstream.reused = reused
        self.connect: Callable[[], Any] = self.never
        self.context.pool.connect = self._connect  # type: ignore[method-assign] # no socket
        if pooled:
            self.context.pool.give_back(self.upstream)
        self.exchange = ProxiedExchange(self.client, self.record, request, self.context.balancer, permit)

    async def _connect(self) -> UpstreamConnection:
        found: UpstreamConnection = await self.connect()
        return found

    async def never(self) -> Any:
        await asyncio.Event().wait()

    async def at_once(self) -> Any:
        return self.upstream

    async def refused(self) -> Any:
        raise ConnectionRefusedError

    async def out_of_descriptors(self) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    async def untrusted(self) -> Any:
        raise ssl.SSLCertVerificationError

    async def too_late(self) -> Any:
        raise TimeoutError


def started(one: RequestHead, *received: bytes) -> Harness:
    """Return a harness whose exchange has sent its head, and got these pieces of a response."""
    harness = Harness(one)
    harness.exchange.start(HEAD, 1000.0)
    for piece in received:
        harness.upstream.data_received(piece)
    return harness


def test_a_whole_response_ends_the_exchange() -> None:
    harness = started(request())
    harness.context.pool.health.failures = 1
    assert harness.origin.take() == HEAD
    harness.upstream.data_received(RESPONSE)
    assert harness.client.calls == [("whole", RESPONSE)]
    assert (harness.context.pool.idle, harness.context.pool.health.failures) == ([harness.upstream], 0)
    record = harness.record
    assert (record.upstream, record.upstream_status, record.status, record.bytes) == ("192.0.2.200:80", 200, 200, 2)
    assert record.upstream_start == record.upstream_first_byte == harness.context.now


@pytest.mark.parametrize(
    ("line", "fields", "keep", "framing"),
    [
        (b"GET / HTTP/1.1", (b"Connection: close",), False, b"Content-Length: 2\r\nConnection: close\r\n"),
        (b"GET / HTTP/1.0", (b"Connection: keep-alive",), True, b"Content-Length: 2\r\nConnection: keep-alive\r\n"),
    ],
)
def test_the_connection_is_kept_as_the_request_asks(
    line: bytes, fields: tuple[bytes, ...], keep: bool, framing: bytes
) -> None:
    harness = started(request(line, *fields), RESPONSE)
    assert harness.client.written == b"HTTP/1.1 200 OK\r\nDate: d\r\n" + framing + b"\r\nhi"
    assert harness.client.calls == [("complete", keep, False)]


@pytest.mark.parametrize(
    ("line", "head", "written", "keep"),
    [
        (b"GET / HTTP/1.1", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\n\r\n", True),
        (b"GET / HTTP/1.0", b"Transfer-Encoding: chunked", b"Connection: close\r\n\r\n", False),
        (b"GET / HTTP/1.1", b"X: y", b"X: y\r\nTransfer-Encoding: chunked\r\n\r\n", True),
        (b"HEAD / HTTP/1.1", b"Content-Length: 9", b"Content-Length: 9\r\n\r\n", True),
        (b"HEAD / HTTP/1.1", b"Content-Length: 0", b"Content-Length: 0\r\n\r\n", True),
        (b"HEAD / HTTP/1.1", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\n\r\n", True),
    ],
)
def test_the_framing_of_a_response_is_written_anew(line: bytes, head: bytes, written: bytes, keep: bool) -> None:
    harness = started(request(line), b"HTTP/1.1 200 OK\r\nDate: d\r\n" + head + b"\r\n\r\n")
    assert harness.client.written == b"HTTP/1.1 200 OK\r\nDate: d\r\n" + written
    assert harness.exchange._keep is (keep and line.endswith(b"1.1"))


def test_a_body_without_framing_ends_the_connection() -> None:
    harness = started(request(b"GET / HTTP/1.0", b"Connection: keep-alive"), b"HTTP/1.1 200 OK\r\nDate: d\r\n\r\n")
    assert harness.client.written == b"HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\n"


def test_a_client_that_expects_100_is_waited_for_once_it_is_sent() -> None:
    harness = started(request(*POST, b"Expect: 100-continue"))
    assert not harness.exchange.waits_for_client
    harness.upstream.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert harness.exchange.waits_for_client


@pytest.mark.parametrize(
    ("status", "framing"), [(b"304 Not Modified", b"Content-Length: 999\r\n"), (b"204 No Content", b"")]
)
def test_a_response_without_a_body_keeps_the_length_that_it_describes_or_has_none(
    status: bytes, framing: bytes
) -> None:
    harness = started(request())
    head = b"HTTP/1.1 " + status + b"\r\nDate: d\r\n"
    harness.upstream.data_received(head + (framing or b"Content-Length: 0\r\n") + b"\r\n")
    assert harness.client.written == head + framing + b"\r\n"
    assert harness.client.calls == [("complete", True, False)]


def test_a_response_without_a_date_gets_one() -> None:
    harness = started(request(), RESPONSE.replace(b"Date: d\r\n", b""))
    assert harness.client.written.count(b"Date: ") == 1


INTERIM = b"HTTP/1.1 103 Early Hints\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_BODY = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n"
UNBOUNDED = b"HTTP/1.1 200 OK\r\nDate: d\r\n\r\nhi"


@pytest.mark.parametrize(
    ("pieces", "written"),
    [
        ((RESPONSE[:9], RESPONSE[9:-1], RESPONSE[-1:]), RESPONSE),
        ((CHUNKED + b"2\r\nhi\r\n0\r\nX: y\r\n\r\n",), CHUNKED + b"2\r\nhi\r\n0\r\nx: y\r\n\r\n"),
        ((INTERIM + INTERIM + RESPONSE,), INTERIM + INTERIM + RESPONSE),
        ((INTERIM + RESPONSE[:9], RESPONSE[9:]), INTERIM + RESPONSE),
        ((INTERIM + NO_BODY,), INTERIM + NO_BODY),
    ],
)
def test_a_response_is_relayed_as_it_comes(pieces: tuple[bytes, ...], written: bytes) -> None:
    harness = started(request(), *pieces)
    assert (harness.client.written, harness.client.calls) == (written, [("complete", True, False)])
    assert harness.context.pool.idle == [harness.upstream]
    assert harness.upstream.reused


@pytest.mark.parametrize(
    ("received", "error", "call"),
    [
        (RESPONSE[:-1], None, ("abort", "truncated", False)),
        (UNBOUNDED, None, ("complete", True, False)),
        (UNBOUNDED, ConnectionResetError(), ("abort", "truncated", False)),
    ],
)
def test_a_connection_that_closes_ends_only_a_body_without_framing(
    received: bytes, error: Exception | None, call: Any
) -> None:
    harness = started(request(), received)
    assert not harness.upstream.eof_received()
    harness.upstream.connection_lost(error)
    assert harness.client.calls == [call]
    assert harness.client.written.endswith(b"2\r\nhi\r\n0\r\n\r\n") is (call[0] == "complete")


@pytest.mark.parametrize(
    ("received", "call"),
    [
        (b"SSH-2.0\r\n", ("fail", 502, False, "malformed")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000, ("fail", 502, False, "malformed")),
        (CHUNKED + b"zz\r\n", ("abort", "truncated", False)),
        (RESPONSE[:-1] + b"i, evil", ("complete", True, False)),
    ],
)
def test_a_connection_is_not_used_after_malformed_or_further_bytes(received: bytes, call: Any) -> None:
    harness = started(request(), received)
    assert harness.client.calls == [call]
    assert (harness.upstream.state, harness.context.pool.idle) == (UpstreamState.CLOSED, [])
    assert harness.origin.is_closing()


def test_bytes_without_a_request_close_the_connection() -> None:
    harness = Harness(request())
    harness.upstream.pause_writing()  # of no request
    harness.upstream.resume_writing()
    harness.upstream.data_received(RESPONSE)
    assert harness.origin.aborted
    assert (harness.client.calls, harness.context.pool.idle) == ([], [])


def test_many_interim_responses_are_read_without_copying_the_rest() -> None:
    class Counted(bytes):
        copied = 0

        def __getitem__(self, key: Any) -> Any:
            piece = super().__getitem__(key)
            Counted.copied += len(piece) if isinstance(piece, bytes) else 0
            return Counted(piece) if isinstance(piece, bytes) else piece

    harness, flood = started(request()), Counted(INTERIM * 5000)
    harness.upstream.data_received(flood)
    assert harness.client.written == flood
    assert Counted.copied < 4 * len(flood)


@pytest.mark.parametrize("leave", ["close", "abort", "release_transport"])
@pytest.mark.parametrize("received", [None, RESPONSE[:-1], RESPONSE[:9]])
def test_a_connection_can_be_left_in_every_state_and_reports_nothing(received: bytes | None, leave: str) -> None:
    harness = Harness(request()) if received is None else started(request(), received)
    for _ in range(2):
        getattr(harness.upstream, leave)()
        harness.upstream.connection_lost(None)
    assert harness.upstream.state is UpstreamState.CLOSED
    assert harness.client.calls == []
    assert not harness.context.pool.open


def test_a_body_is_forwarded_and_what_follows_is_returned() -> None:
    harness = started(request(*POST))
    assert harness.exchange.takes_body
    assert harness.exchange.feed(b"he") == b""
    assert harness.exchange.waits_for_client
    assert harness.exchange.feed(b"lloGET") == b"GET"
    assert not harness.exchange.takes_body
    assert harness.origin.written == HEAD + b"hello"


def test_a_malformed_body_ends_the_exchange_on_both_sides() -> None:
    for pieces, call in (
        ([], ("fail", 400, True, "malformed")),
        ([RESPONSE[:-1]], ("abort", "malformed", False)),
    ):
        harness = started(request(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked"), *pieces)
        assert harness.exchange.feed(b"zz\r\n") == b""
        assert harness.client.calls == [call]
        assert counted(harness.context) == ({} if pieces else {"malformed": 1})
        assert harness.origin.aborted


async def test_a_limited_part_of_a_body_is_kept_until_there_is_a_connection() -> None:
    harness = Harness(request(b"POST / HTTP/1.1", b"Content-Length: 200000"), pooled=False)
    harness.connect = harness.at_once
    harness.exchange.start(HEAD, 1000.0)
    harness.exchange.feed(b"x" * MAX_HELD_BODY)
    assert harness.client.calls == []
    harness.exchange.feed(b"x")
    assert harness.client.calls == ["pause"]
    await turns()
    assert harness.client.calls == ["pause", "resume"]
    assert harness.origin.written == HEAD + b"x" * (MAX_HELD_BODY + 1)


@pytest.mark.parametrize(
    ("connect", "status", "event"),
    [
        ("refused", 502, "unreachable"),
        ("too_late", 504, "timeout"),
        ("out_of_descriptors", 502, "descriptors"),
        ("untrusted", 502, "tls"),
    ],
)
async def test_an_origin_that_cannot_be_reached_is_an_error(connect: str, status: int, event: str) -> None:
    harness = Harness(request(*POST), pooled=False)
    harness.connect = getattr(harness, connect)
    harness.exchange.start(HEAD, 1000.0)
    await turns()
    assert harness.client.calls == [("fail", status, True, event)]
    assert counted(harness.context) == {event: 1}
    health = harness.context.pool.health  # a handshake will not get better, and descriptors are not the origin's
    assert (health.failures, health.release > 0) == (int(event != "descriptors"), event == "tls")


async def test_only_a_repeatable_request_on_a_reused_connection_is_sent_again() -> None:
    for one, reused, received, repeated in (
        (request(), True, b"", True),
        (request(), False, b"", False),
        (request(), True, b"HTTP/1.1 2", False),
        (request(b"HEAD / HTTP/1.1"), True, b"", True),
        (request(b"OPTIONS / HTTP/1.1"), True, b"", True),
        (request(b"DELETE / HTTP/1.1"), True, b"", True),
        (request(b"POST / HTTP/1.1"), True, b"", False),
        (request(b"PUT / HTTP/1.1", b"Content-Length: 1"), True, b"", False),
    ):
        harness = Harness(one, reused=reused)
        harness.exchange.start(HEAD, 1000.0)
        if received:
            harness.upstream.data_received(received)
        harness.upstream.connection_lost(None)
        assert (harness.exchange._connecting is not None) is repeated
        assert harness.client.calls == ([] if repeated else [("fail", 502, one.has_body, "unreachable")])
        harness.exchange.abandon()
        await turns()


class Pair:
    """An exchange before two origins with these settings; `fail` and `answer` say what the connections to each do."""

    def __init__(self, request: RequestHead, *acts: str, **settings: Any) -> None:
        urls = ("http://192.0.2.1", "http://192.0.2.2/app")
        self.pools = [make_pool(url=url, **settings) for url in urls]
        self.transports: list[StubTransport] = []
        self.acts = list(acts)
        for pool in self.pools:
            pool.connect = partial(self.connect, pool)  # type: ignore[method-assign]  # no socket
        self.context = make_context(None, *self.pools)
        self.client, self.record = Client(), RequestRecord("192.0.2.9", 0.0, 1000.0, request)
        self.exchange = ProxiedExchange(self.client, self.record, request, self.context.balancer, None)

    async def connect(self, pool: UpstreamPool) -> UpstreamConnection:
        act = self.acts.pop(0)
        if act == "refuse":
            raise ConnectionRefusedError
        connection, transport = UpstreamConnection(pool), StubTransport()
        self.transports.append(transport)
        connection.connection_made(transport)
        asyncio.get_running_loop().call_soon(
            connection.connection_lost if act == "lose" else connection.data_received,
            None if act == "lose" else RESPONSE,
        )
        return connection

    async def run(self, head: bytes = HEAD) -> list[Any]:
        self.exchange.start(head, 1000.0)
        await turns(9)
        return self.client.calls


@pytest.mark.parametrize(
    ("one", "acts", "answered"),
    [
        (request(), ["refuse", "answer"], True),
        (request(), ["lose", "answer"], True),
        (request(), ["lose", "lose", "answer"], False),
        (request(), ["refuse", "refuse", "answer"], False),
        (request(b"POST / HTTP/1.1"), ["refuse", "answer"], True),
        (request(b"POST / HTTP/1.1"), ["lose", "answer"], False),
        (request(b"PUT / HTTP/1.1", b"Content-Length: 0"), ["lose", "answer"], True),
    ],
)
async def test_another_origin_is_asked_once_where_the_first_cannot_have_acted(
    one: RequestHead, acts: list[str], answered: bool
) -> None:
    pair = Pair(one, *acts)
    [call] = await pair.run(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert call[0] == ("whole" if answered else "fail")
    if answered:
        assert pair.record.upstream == "192.0.2.2:80/app"
        assert pair.transports[-1].written == b"GET /app/x HTTP/1.1\r\nHost: a\r\n\r\n"
        assert (pair.pools[0].failures["unreachable"], pair.context.counters.moved) == (1, 1)
    assert [pool.health.in_flight for pool in pair.pools] == [0, 0]


async def test_a_body_that_was_kept_is_sent_to_the_other_origin() -> None:
    pair = Pair(request(*POST), "refuse", "answer")
    pair.exchange.start(HEAD, 1000.0)
    assert pair.exchange.feed(b"hello") == b""
    await turns(9)
    assert pair.transports[-1].written == HEAD + b"hello"


async def test_a_stale_connection_is_replaced_before_another_origin_is_asked() -> None:
    pair = Pair(request(), "refuse", "answer")
    stale = UpstreamConnection(pair.pools[0])
    stale.connection_made(StubTransport())
    stale.reused = True
    pair.pools[0].give_back(stale)
    pair.exchange.start(HEAD, 1000.0)
    stale.connection_lost(None)
    await turns(9)
    assert pair.client.calls[0][0] == "whole"
    assert pair.acts == []


async def test_full_origins_are_503_with_a_reason_of_their_own_and_recover() -> None:
    pair = Pair(request(), max_in_flight=1)
    for pool in pair.pools:
        pool.health.in_flight = 1
    assert await pair.run() == [("fail", 503, False, "full")]
    assert counted(pair.context) == {"full": 1}
    assert [pool.health.in_flight for pool in pair.pools] == [1, 1]


@pytest.mark.parametrize("path", [b"/../x", b"/a/%2e%2E", b"/a%2f..%5cb", b"/..;x/b", b"/a/..?q", b"/a\\..\\b"])
async def test_a_path_that_could_leave_the_prefix_is_refused(path: bytes) -> None:
    pair = Pair(request(b"GET " + path + b" HTTP/1.1"), "answer")
    pair.context.balancer.replace(pair.pools[1:])
    assert await pair.run() == [("fail", 400, True, "malformed")]
    for acts, call in ((["answer"], "whole"), (["refuse", "answer"], "fail")):  # the first origin has no prefix
        pair = Pair(request(b"GET " + path + b" HTTP/1.1"), *acts)
        assert (await pair.run())[0][0] == call


@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (b"GET /?/ HTTP/1.1\r\nX: 1\r\nhOST:  a:1 \r\n\r\n", b"GET /p/?/ HTTP/1.1\r\nX: 1\r\nhOST:  b.example\r\n\r\n"),
        (b"OPTIONS * HTTP/1.1\r\nHost: \r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: b.example\r\n\r\n"),
    ],
)
def test_prefix_and_host_are_written_into_the_head(head: bytes, sent: bytes) -> None:
    rewrite = make_pool(url="http://a/p/", host="b.example").rewrite
    assert rewrite is not None
    assert rewrite(head) == sent


def test_a_timeout_is_504_before_the_response_and_a_broken_response_within_it() -> None:
    for line, received, call, event in (
        (b"GET / HTTP/1.1", b"", ("fail", 504, False, "timeout"), "timeout"),
        (b"GET / HTTP/1.1", RESPONSE[:-1], ("abort", "truncated", False), "truncated"),
        (b"GET / HTTP/1.0", RESPONSE[:-1], ("abort", "truncated", True), "truncated"),
    ):
        harness = started(request(line))
        if received:
            harness.upstream.data_received(received)
        harness.exchange.time_out(body_awaited=False)
        assert harness.client.calls == [call]
        assert counted(harness.context) == {event: 1}
        assert harness.origin.aborted


@pytest.mark.parametrize(("sent", "buffered"), [(b"", 0), (b"hello", 1)])
def test_an_origin_that_has_not_taken_the_whole_body_is_left_after_its_response(sent: bytes, buffered: int) -> None:
    harness = started(request(*POST))
    harness.exchange.feed(sent)
    harness.origin.buffered = buffered
    harness.upstream.data_received(RESPONSE)
    assert harness.client.calls == [("complete", True, not sent)]
    assert (harness.origin.aborted, harness.context.pool.idle) == (True, [])


def test_interim_responses_reach_http_1_1_clients_only() -> None:
    for line, written in ((b"GET / HTTP/1.1", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"), (b"GET / HTTP/1.0", b"")):
        harness = started(request(line), b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n")
        assert harness.client.written == written
        assert not harness.exchange.begun


def test_either_side_is_paused_while_the_other_is_slow() -> None:
    harness = Harness(request(*POST))
    harness.exchange.pause_response()  # without a connection there is nothing to pause
    harness.exchange.start(HEAD, 1000.0)
    harness.exchange.pause_response()
    assert not harness.origin.reading
    harness.exchange.resume_response()
    assert harness.origin.reading
    harness.upstream.pause_writing()
    harness.upstream.resume_writing()
    assert harness.client.calls == ["pause", "resume"]


def test_an_origin_that_is_paused_at_the_end_of_a_response_is_read_for_the_next_one() -> None:
    harness = started(request(), RESPONSE[:-1])
    harness.exchange.pause_response()
    harness.upstream.data_received(RESPONSE[-1:])
    assert harness.context.pool.idle == [harness.upstream]
    assert harness.origin.reading


UPGRADE = b"Connection: Upgrade", b"Upgrade: websocket"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def test_a_websocket_that_both_sides_want_becomes_a_tunnel() -> None:
    harness = started(request(b"GET / HTTP/1.1", *UPGRADE), SWITCH + b"hi")
    assert harness.client.calls == [("tunnel", SWITCH + b"hi")]
    assert harness.record.status == 101


@pytest.mark.parametrize(
    ("fields", "response"), [((), SWITCH), (UPGRADE, SWITCH.replace(b"websocket", b"h2c"))], ids=["unasked", "other"]
)
def test_any_other_switch_is_502(fields: tuple[bytes, ...], response: bytes) -> None:
    harness = started(request(b"GET / HTTP/1.1", *fields), response)
    assert harness.client.calls == [("fail", 502, False, "malformed")]


@pytest.mark.parametrize(("begun", "keep"), [(b"", False), (RESPONSE[:-1], True)])
def test_a_drained_exchange_closes_the_connection_unless_its_response_has_begun(begun: bytes, keep: bool) -> None:
    harness = started(request(), *[begun] * keep)
    harness.exchange.drain()
    harness.upstream.data_received(RESPONSE[len(begun) :])
    assert (b"Connection: close\r\n" in harness.client.written) is not keep
    assert harness.client.calls == [("complete", keep, False)]


# Responses that a client reads slowly.

LARGE = b"HTTP/1.1 200 OK\r\nDate: d\r\n%bContent-Length: 100\r\n\r\n" + b"x" * 10


def slow(fields: bytes = b"", *, memory: int = 1000, file: int = 0, permit: Permit | None = None) -> Harness:
    """Return a harness whose client has become slow within a response."""
    harness = Harness(request(), permit=permit)
    harness.client.buffer = SpooledBuffer(harness.space, memory=memory, file=file)
    harness.exchange.start(HEAD, 1000.0)
    harness.upstream.data_received(LARGE % fields)
    harness.client.written = b""
    harness.exchange.pause_response()
    return harness


async def test_a_slow_client_frees_the_origin_and_gets_the_rest_later() -> None:
    harness = slow()
    harness.upstream.data_received(b"y" * 89)
    harness.upstream.data_received(b"z")
    assert harness.context.pool.idle == [harness.upstream]
    assert (harness.client.written, harness.client.calls) == (b"", [])
    harness.exchange.resume_response()
    await turns(1)
    assert harness.client.written == b"y" * 89 + b"z"
    assert harness.client.calls == [("complete", True, False)]
    assert harness.space.memory == 1000


async def test_a_client_that_reads_again_in_time_gets_the_rest_as_it_arrives() -> None:
    harness = slow()
    harness.upstream.data_received(b"y" * 50)
    harness.exchange.resume_response()
    harness.upstream.data_received(b"z")
    await turns(1)
    harness.upstream.data_received(b"z" * 39)
    assert harness.client.written == b"y" * 50 + b"z" * 40
    assert harness.client.calls == [("complete", True, False)]


async def test_the_origin_waits_while_there_is_no_room() -> None:
    harness = slow(memory=0, file=40)
    harness.upstream.data_received(b"y" * 40)
    assert harness.origin.reading
    harness.upstream.data_received(b"z")
    assert not harness.origin.reading
    harness.exchange.resume_response()
    assert not harness.origin.reading
    await turns(1)
    assert harness.origin.reading
    assert harness.client.written == b"y" * 40 + b"z"


@pytest.mark.parametrize(
    ("field", "buffered"),
    [
        (b"Content-Type: text/event-stream", False),
        (b"content-type: Text/Event-Stream;charset=utf-8", False),
        (b"X-Accel-Buffering: no", False),
        (b"X-Accel-Buffering: no ", False),
        (b"X-Accel-Buffering: yes", True),
        (b"X: Content-Type: text/event-stream", True),
    ],
)
def test_streams_are_not_buffered(field: bytes, buffered: bool) -> None:
    assert slow(field + b"\r\n").origin.reading is buffered


async def test_what_a_client_did_not_take_does_not_count_as_sent() -> None:
    for end, call in ((False, []), (True, [("abort", "truncated", False)])):
        harness = slow()
        harness.upstream.data_received(b"y" * 50)
        if end:
            harness.upstream.connection_lost(None)
        else:
            harness.exchange.abandon()
        assert harness.client.calls == call
        assert harness.record.bytes == 10
        assert harness.space.memory == 1000
        harness.exchange.resume_response()
        await turns()
        assert harness.client.written == b""


async def test_a_lost_buffer_ends_the_response() -> None:
    harness = slow(memory=0, file=100)
    harness.upstream.data_received(b"y" * 50)
    harness.space.files, file = 0, harness.client.buffer._file  # type: ignore[union-attr]
    assert file is not None
    file.truncate(0)
    harness.exchange.resume_response()
    await turns(1)
    assert harness.client.calls == [("abort", "buffers", False)]
    assert harness.origin.aborted


# Bodies of requests that were read before.


def collected(body: bytes, *, file: bool = False) -> tuple[Harness, list[str]]:
    """Return a harness whose request has a whole body of this content, and the calls of `received`."""
    harness, calls = Harness(request(b"POST / HTTP/1.1", b"Content-Length: %d" % len(body))), []
    space = BufferSpace("request", 1 << 20, 1 << 20, harness.context.counters, lambda _: None)
    buffer = SpooledBuffer(space, memory=0 if file else 1 << 20, file=1 << 20)
    harness.exchange.collect(buffer, lambda: calls.append("received"))
    assert harness.exchange.feed(body + b"GET") == b"GET"
    assert calls == ["received"]
    assert not harness.exchange.takes_body
    return harness, calls


@pytest.mark.parametrize("file", [False, True])
async def test_a_body_is_sent_as_fast_as_the_origin_reads(file: bool) -> None:
    harness, _ = collected(b"x" * 70_000 + b"y", file=file)
    write = harness.origin.write

    def slow_write(data: bytes) -> None:
        write(data)
        harness.upstream.pause_writing()

    harness.origin.write = slow_write  # type: ignore[method-assign,assignment]
    harness.exchange.start(HEAD, 1000.0)
    for sent in (0, 65_536, 70_001):
        await turns()
        assert len(harness.origin.written) == len(HEAD) + sent
        renewed = harness.client.renewed
        harness.upstream.resume_writing()
        assert harness.client.renewed > renewed
    await turns()
    assert harness.origin.written == HEAD + b"x" * 70_000 + b"y"
    assert harness.client.calls == []  # reading from the client was not paused
    harness.upstream.data_received(RESPONSE)
    assert harness.context.pool.idle == [harness.upstream]


async def test_nothing_is_sent_to_an_origin_that_has_reset_the_connection() -> None:
    harness, _ = collected(b"x" * 200_000)
    write = harness.origin.write

    def failing_write(data: bytes) -> None:
        write(data)
        harness.origin.closed = len(harness.origin.written) > len(HEAD)

    harness.origin.write = failing_write  # type: ignore[method-assign,assignment]
    harness.exchange.start(HEAD, 1000.0)
    await turns()
    assert len(harness.origin.written) == len(HEAD) + 65_536
    harness.upstream.connection_lost(ConnectionResetError())
    assert harness.client.calls[-1][0] == "fail"
    assert harness.exchange._upload is None


async def test_an_early_response_ends_the_sending_of_a_body_and_keeps_the_client() -> None:
    harness, _ = collected(b"x" * 100)
    harness.exchange._upload.paused = True  # type: ignore[union-attr]
    harness.exchange.start(HEAD, 1000.0)
    harness.upstream.data_received(RESPONSE)
    assert harness.origin.aborted
    assert harness.client.calls == [("complete", True, False)]
    assert harness.exchange._upload is None


def test_a_permit_does_not_outlive_a_client_whose_body_the_origin_has_not_got() -> None:
    harness, _ = collected(b"x" * 100)
    permits = Permits(ConcurrencyLimit(ConcurrencySettings(healthy_latency=1.0, abandoned="hold"), lambda: 0.5))
    harness.exchange.permit = permits.take()
    harness.exchange._upload.paused = True  # type: ignore[union-attr]
    harness.exchange.start(HEAD, 1000.0)
    harness.exchange.abandon()
    assert harness.origin.aborted
    assert permits.limit.state.in_flight == 0


def test_reading_is_paused_and_resumed_once() -> None:
    harness = started(request())
    harness.upstream.pause()
    assert not harness.origin.reading
    harness.origin.reading = True
    harness.upstream.pause()
    assert harness.origin.reading  # the transport was not called again
    harness.upstream.resume()
    harness.origin.close()
    harness.upstream.pause()
    assert harness.origin.reading


# Connections that are kept.


def idle(pool: UpstreamPool) -> UpstreamConnection:
    connection = UpstreamConnection(pool)
    connection.connection_made(StubTransport())
    pool.give_back(connection)
    return connection


def test_the_pool_gives_the_connection_that_was_used_last() -> None:
    pool = make_pool()
    first, second = idle(pool), idle(pool)
    assert pool.take(repeatable=True) is second
    assert pool.take(repeatable=True) is first
    assert pool.take(repeatable=True) is None


def test_a_request_that_must_not_be_repeated_gets_a_connection_used_just_now() -> None:
    pool = make_pool()
    idle(pool)
    pool.now += 1.5
    assert pool.take(repeatable=False) is None
    assert pool.take(repeatable=True) is not None


def test_the_pool_closes_connections_idle_for_too_long_and_over_its_limit() -> None:
    pool = make_pool()
    kept = [idle(pool) for _ in range(MAX_IDLE_CONNECTIONS + 1)]
    assert (len(pool.idle), kept[-1].state) == (MAX_IDLE_CONNECTIONS, UpstreamState.CLOSED)
    pool.tick(IDLE_TIMEOUT)
    assert len(pool.idle) == MAX_IDLE_CONNECTIONS
    pool.tick(IDLE_TIMEOUT + 0.1)
    assert not pool.idle
    assert not pool.open


def test_a_connection_that_closes_is_not_taken() -> None:
    pool = make_pool()
    connection = idle(pool)
    connection.transport.close()
    assert pool.take(repeatable=True) is None


def test_the_authority_brackets_ipv6() -> None:
    for url, authority in (("http://[::1]", b"[::1]:80"), ("http://a", b"a:80")):
        assert make_pool(url=url).authority == authority
