"""A connection to the origin, called directly, over a transport without a socket; each row of its table."""

from typing import Any

import pytest

from headgate.errors import ProtocolError
from headgate.http.h1 import BodyReader, ChunkedBody, LengthBody, ResponseHead, UnboundedBody
from headgate.origin.gateway.exchange import (
    IDLE_TIMEOUT,
    MAX_IDLE_CONNECTIONS,
    UpstreamConnection,
    UpstreamPool,
    UpstreamState,
)
from tests.unit.origin.gateway.stub import StubTransport, make_pool

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Handler:
    """Stands for an exchange, and records the reports of the connection."""

    def __init__(self, *, relays_whole: bool = True) -> None:
        self.relays_whole = relays_whole
        self.events: list[Any] = []

    def relay_whole(self, _head: ResponseHead, body: bytes) -> None:
        self.events.append(("whole", body))

    def interim_head(self, head: ResponseHead) -> list[bytes]:
        self.events.append(("interim", head.status))
        return [b"I"]

    def final_head(self, head: ResponseHead) -> tuple[bytes, BodyReader]:
        self.events.append(("final", head.status))
        if head.chunked:
            return b"H", ChunkedBody(framed=True, max_trailers=100)
        return b"H", LengthBody(head.length) if head.length >= 0 else UnboundedBody(framed=True)

    def relay(self, pieces: list[bytes], size: int = 0) -> None:
        self.size = size
        self.events.append(("relay", b"".join(pieces)))

    def finish(self, *, reusable: bool) -> None:
        self.events.append(("end", reusable))

    def lost(self, _error: Exception | None, *, unanswered: bool) -> None:
        self.events.append(("lost", unanswered))

    def fail(self, kind: str, _explanation: str) -> None:
        self.events.append(("fail", kind))

    def truncated(self) -> None:
        self.events.append("truncated")

    def switch(self, head: ResponseHead, rest: bytes) -> None:
        raise ProtocolError(502, "not asked for")

    def set_upstream_slow(self, *, slow: bool) -> None:
        self.events.append("pause" if slow else "resume")


class Harness:
    """A connection in a state, with its handler, transport and pool."""

    def __init__(self, state: UpstreamState = UpstreamState.IDLE, *, relays_whole: bool = True) -> None:
        self.pool = make_pool(head=500)
        self.connection, self.transport = UpstreamConnection(self.pool), StubTransport()
        self.handler: Any = Handler(relays_whole=relays_whole)
        self.connection.connection_made(self.transport)
        if state is UpstreamState.CLOSED:
            self.connection.close()
        elif state is not UpstreamState.IDLE:
            self.connection.begin(self.handler, REQUEST)
            assert self.transport.take() == REQUEST
            if state is UpstreamState.RECEIVING:
                self.connection.data_received(HEAD + b"hel")
        assert self.connection.state is state
        self.handler.events.clear()

    def receive(self, *pieces: bytes) -> list[Any]:
        """Receive pieces; return what was reported for them."""
        self.handler.events.clear()
        for piece in pieces:
            self.connection.data_received(piece)
        events: list[Any] = self.handler.events
        return events


@pytest.mark.parametrize("leave", ["close", "abort", "release_transport"])
@pytest.mark.parametrize("state", list(UpstreamState))
def test_a_connection_can_be_left_in_every_state_and_reports_nothing(state: UpstreamState, leave: str) -> None:
    harness = Harness(state)
    getattr(harness.connection, leave)()
    harness.connection.connection_lost(None)
    assert harness.connection.state is UpstreamState.CLOSED
    assert harness.handler.events == []
    assert not harness.pool.open


def test_a_usual_response_in_one_piece_is_relayed_whole() -> None:
    harness = Harness(UpstreamState.WAITING)
    assert harness.receive(HEAD + b"hello") == [("whole", b"hello")]
    assert harness.pool.idle == [harness.connection]
    assert harness.connection.reused


@pytest.mark.parametrize("relays_whole", [True, False])
def test_a_response_in_pieces_is_relayed_as_it_comes(relays_whole: bool) -> None:
    harness = Harness(UpstreamState.WAITING, relays_whole=relays_whole)
    assert harness.receive(HEAD[:9], HEAD[9:] + b"he", b"llo") == [
        ("final", 200), ("relay", b"Hhe"), ("relay", b"llo"), ("end", True),
    ]  # fmt: skip
    assert harness.connection.state is UpstreamState.IDLE
    assert harness.pool.idle == []  # the exchange decides whether it is given back


def test_pieces_of_a_head_report_nothing_and_do_not_move_its_deadline() -> None:
    assert Harness(UpstreamState.WAITING).receive(*(bytes([byte]) for byte in HEAD[:-1])) == []


def test_chunks_and_trailers_are_relayed() -> None:
    harness = Harness(UpstreamState.WAITING)
    assert harness.receive(CHUNKED + b"2\r\nhi\r\n0\r\nX: y\r\n\r\n") == [
        ("final", 200), ("relay", b"H2\r\nhi\r\n0\r\nx: y\r\n\r\n"), ("end", True),
    ]  # fmt: skip


def test_interim_responses_come_before_the_final_one() -> None:
    harness = Harness(UpstreamState.WAITING)
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    assert harness.receive(interim + interim + HEAD + b"hello") == [
        ("interim", 103), ("interim", 103), ("final", 200), ("relay", b"IIHhello"), ("end", True),
    ]  # fmt: skip


def test_a_head_in_pieces_may_follow_an_interim_response() -> None:
    harness = Harness(UpstreamState.WAITING)
    assert harness.receive(b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD[:9], HEAD[9:] + b"hello") == [
        ("interim", 103), ("relay", b"I"), ("final", 200), ("relay", b"Hhello"), ("end", True),
    ]  # fmt: skip


def test_a_body_that_ends_with_the_connection_gets_its_last_chunk() -> None:
    harness = Harness(UpstreamState.WAITING)
    harness.receive(b"HTTP/1.1 200 OK\r\n\r\nhi")
    harness.connection.connection_lost(None)
    assert harness.handler.events[-2:] == [("relay", b"0\r\n\r\n"), ("end", False)]


def test_many_interim_responses_are_read_without_copying_the_rest() -> None:
    class Counted(bytes):
        copied = 0

        def __getitem__(self, key: Any) -> Any:
            piece = super().__getitem__(key)
            Counted.copied += len(piece) if isinstance(piece, bytes) else 0
            return Counted(piece) if isinstance(piece, bytes) else piece

    harness, flood = Harness(UpstreamState.WAITING), Counted(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5000)
    assert harness.receive(flood)[-1] == ("relay", b"I" * 5000)
    assert Counted.copied < 4 * len(flood)


@pytest.mark.parametrize(
    ("response", "reported"),
    [
        (b"SSH-2.0\r\n", ("fail", "malformed")),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000, ("fail", "malformed")),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", ("fail", "malformed")),
        (CHUNKED + b"zz\r\n", "truncated"),
    ],
)
def test_a_malformed_response_ends_the_connection(response: bytes, reported: Any) -> None:
    harness = Harness(UpstreamState.WAITING)
    assert harness.receive(response)[-1] == reported
    assert harness.transport.aborted
    assert harness.connection.state is UpstreamState.CLOSED


def test_bytes_beyond_the_response_make_the_connection_unusable() -> None:
    assert Harness(UpstreamState.RECEIVING).receive(b"lo, evil")[-1] == ("end", False)


def test_bytes_without_a_request_close_the_connection() -> None:
    harness = Harness(UpstreamState.IDLE)
    harness.pool.give_back(harness.connection)
    assert harness.receive(HEAD + b"evil!") == []
    assert harness.transport.aborted
    assert harness.pool.idle == []


@pytest.mark.parametrize(
    ("pieces", "error", "reported"),
    [
        ([], None, ("lost", True)),
        ([HEAD[:9]], None, ("lost", False)),
        ([HEAD], None, "truncated"),
        ([b"HTTP/1.1 200 OK\r\n\r\nhi"], None, ("end", False)),
        ([b"HTTP/1.1 200 OK\r\n\r\nhi"], ConnectionResetError(), "truncated"),
    ],
)
def test_a_connection_that_closes_early_is_reported(
    pieces: list[bytes], error: Exception | None, reported: Any
) -> None:
    harness = Harness(UpstreamState.WAITING)
    harness.receive(*pieces)
    assert not harness.connection.eof_received()
    harness.connection.connection_lost(error)
    assert harness.handler.events[-1] == reported


def test_a_slow_origin_pauses_the_request_under_way_only() -> None:
    for state, reported in ((UpstreamState.IDLE, []), (UpstreamState.WAITING, ["pause", "resume"])):
        harness = Harness(state)
        harness.connection.pause_writing()
        harness.connection.resume_writing()
        assert harness.handler.events == reported


def test_reading_is_paused_and_resumed_once() -> None:
    harness = Harness(UpstreamState.RECEIVING)
    harness.connection.pause()
    assert not harness.transport.reading
    harness.transport.reading = True
    harness.connection.pause()
    assert harness.transport.reading  # the transport was not called again
    harness.connection.resume()
    harness.transport.close()
    harness.connection.pause()
    assert harness.transport.reading


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
