"""Connections to the origin, each of which serves one exchange at a time, and the pool of idle ones.

A connection parses responses strictly and reports to its exchange, which makes all further decisions. Its time is that
of the gateway's last tick, `UpstreamPool.now`.
"""

import asyncio
import enum
from typing import Protocol, cast

from headgate.errors import ProtocolError
from headgate.http.h1 import (
    BodyReader,
    ChunkedBody,
    ResponseHead,
    UnboundedBody,
    check_response_start,
    parse_response_head,
    parse_usual_response_head,
)
from headgate.origin.gateway.addresses import OriginAddresses
from headgate.origin.gateway.forwarding import forwarded_trailers

MAX_IDLE_CONNECTIONS = 512
IDLE_TIMEOUT = 4.0
"""Seconds; common origins close idle connections after 5 and more."""
MAX_UNREPEATABLE_IDLE = 1.0
"""Maximum idle seconds of a connection for a request that must not be sent twice."""


class UpstreamState(enum.Enum):
    """The state of a connection to the origin; CLOSED from every other one."""

    IDLE = enum.auto()
    """No request is under way: it is new, or in the pool."""
    WAITING = enum.auto()
    """A request was sent, and its final response has not begun."""
    RECEIVING = enum.auto()
    """The final response has begun; IDLE at its end."""
    CLOSED = enum.auto()
    """It is closed, closes, or belongs to a tunnel."""


class ResponseHandler(Protocol):
    """An exchange, as the connection to the origin reports to it."""

    relays_whole: bool
    """Whether a usual response that arrives in one piece may be passed on as it is."""

    def relay_whole(self, message: bytes) -> None:
        """Pass on a whole response; the connection has been given back to the pool."""

    def interim_head(self, head: ResponseHead) -> list[bytes]:
        """Return what to send of a 1xx response."""

    def final_head(self, head: ResponseHead) -> tuple[bytes, BodyReader]:
        """Begin the final response; returns the head to send, and the reader of its body."""

    def relay(self, pieces: list[bytes]) -> None:
        """Send pieces of the response."""

    def end(self, *, reusable: bool) -> None:
        """The response is complete; `reusable` is whether the origin keeps the connection."""

    def lost(self, *, unanswered: bool) -> None:
        """The origin closed before a final response began; `unanswered`: it had not sent a byte."""

    def fail(self, kind: str, reason: str) -> None:
        """The response is unusable, and no byte of it has been passed on."""

    def truncated(self) -> None:
        """The response is truncated."""

    def switch(self, head: ResponseHead, rest: bytes) -> None:
        """The origin switches protocols, and has sent `rest`; raises `ProtocolError` if that was not requested."""

    def pause_request(self) -> None:
        """The origin reads slowly."""

    def resume_request(self) -> None:
        """The origin reads again."""


class UpstreamPool:
    """The connections to one origin; the last one used is used first, so that surplus ones expire."""

    def __init__(self, host: str, port: int, max_head_size: int) -> None:
        self.host = host
        self.port = port
        self.max_head_size = max_head_size
        """Bytes of a response head; more is 502."""
        self.authority = f"[{host}]:{port}".encode() if ":" in host else f"{host}:{port}".encode()
        """The value of Host for a request without one."""
        self._addresses = OriginAddresses(host)
        self.now = 0.0
        """The time of the gateway's last tick."""
        self.idle: list[UpstreamConnection] = []
        self.open: set[UpstreamConnection] = set()

    def take(self, *, repeatable: bool) -> "UpstreamConnection | None":
        """Take an idle connection out of the pool; None if there is none that fits."""
        idle = self.idle
        while idle and (repeatable or self.now - idle[-1].idle_since <= MAX_UNREPEATABLE_IDLE):
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    async def connect(self, seconds: float) -> "UpstreamConnection":
        """Open a connection; raises `OSError`, and `TimeoutError` after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._addresses.connect(self._open)
        except OSError:
            self._addresses.expire()
            raise

    async def _open(self, address: str) -> "UpstreamConnection":
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: UpstreamConnection(self), address, self.port)
        return protocol

    def give_back(self, connection: "UpstreamConnection") -> None:
        """Take back a connection whose exchange is complete."""
        if len(self.idle) < MAX_IDLE_CONNECTIONS:
            connection.idle_since = self.now
            self.idle.append(connection)
        else:
            connection.close()

    def tick(self, now: float) -> None:
        """Set the clock, and close connections that have been idle for too long."""
        self.now = now
        # Of all open ones, not only of those in the pool: a client may leave while its connection is being opened.
        for connection in [
            one for one in self.open if one.state is UpstreamState.IDLE and now - one.idle_since > IDLE_TIMEOUT
        ]:
            connection.close()

    def close(self) -> None:
        """Close every connection at once."""
        for connection in list(self.open):
            connection.abort()


class UpstreamConnection(asyncio.Protocol):
    """One connection to the origin."""

    __slots__ = (
        "_body", "_exchange", "_keep_alive", "_paused", "_pending", "_pool", "_transport", "idle_since", "reused",
        "state",
    )  # fmt: skip

    def __init__(self, pool: UpstreamPool) -> None:
        self.state = UpstreamState.IDLE
        self.idle_since = pool.now
        self.reused = False
        """Whether an earlier exchange used this connection: the origin may have closed it meanwhile."""
        self._pool = pool
        self._exchange = cast("ResponseHandler", None)  # of the request under way, while waiting and receiving
        self._transport = cast("asyncio.Transport", None)
        self._pending = b""  # of an incomplete head
        self._body = cast("BodyReader", None)  # of the response that is being received
        self._keep_alive = False  # whether the origin keeps the connection after that response
        self._paused = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: see `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._pool.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End: see `asyncio.Protocol`."""
        state, exchange = self.state, self._exchange
        self._end()
        if state is UpstreamState.WAITING:
            exchange.lost(unanswered=not self._pending)
        elif state is UpstreamState.RECEIVING:
            if isinstance(self._body, UnboundedBody) and error is None:
                exchange.relay([b"0\r\n\r\n"] if self._body.framed else [])
                exchange.end(reusable=False)
            else:
                exchange.truncated()

    def eof_received(self) -> bool:
        """The origin sends no more: let the event loop close the connection."""
        self._leave_pool()
        return False

    def pause_writing(self) -> None:
        """The origin reads slowly."""
        if self.state is UpstreamState.WAITING or self.state is UpstreamState.RECEIVING:
            self._exchange.pause_request()

    def resume_writing(self) -> None:
        """The origin reads again."""
        if self.state is UpstreamState.WAITING or self.state is UpstreamState.RECEIVING:
            self._exchange.resume_request()

    def data_received(self, data: bytes) -> None:
        """Parse a response; a usual one that arrives in one piece is passed on unchanged."""
        state, exchange = self.state, self._exchange
        if state is UpstreamState.WAITING:
            if exchange.relays_whole and not self._pending:
                head = parse_usual_response_head(data)
                if head is not None and len(data) - head.size == head.length and head.has_body(b"GET"):
                    self._end_response()
                    self._pool.give_back(self)
                    exchange.relay_whole(b"%b\r\n%b" % (head.forwardable, data[head.size :]))
                    return
            self._read(data)
        elif state is UpstreamState.RECEIVING:
            self._read(data)
        else:
            self.abort()  # a response without a request must not answer the next request

    # What the exchange calls.

    @property
    def is_open(self) -> bool:
        """Whether it is not closing."""
        return not self._transport.is_closing()

    @property
    def is_drained(self) -> bool:
        """Whether the write buffer is empty."""
        return not self._transport.get_write_buffer_size()

    def begin(self, exchange: ResponseHandler, head: bytes) -> None:
        """Send the head of a request; `exchange` gets the response."""
        self.state = UpstreamState.WAITING
        self._exchange = exchange
        self._transport.write(head)

    def send(self, pieces: list[bytes]) -> None:
        """Send pieces of the request's body."""
        # Not writelines(): in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 it never holds the writer back
        # (CVE-2024-12254).
        self._transport.write(b"".join(pieces))

    def pause(self) -> None:
        """Stop reading: the client reads slowly."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after the write buffer is sent."""
        self._end()
        self._transport.close()

    def abort(self) -> None:
        """Close at once, without reporting it to the exchange."""
        self._end()
        self._transport.abort()

    def release_transport(self) -> asyncio.Transport:
        """Leave the pool; returns the transport."""
        self._end()
        return self._transport

    # States.

    def _end(self) -> None:
        self.state = UpstreamState.CLOSED
        self._leave_pool()
        self._exchange = cast("ResponseHandler", None)

    def _leave_pool(self) -> None:
        self._pool.open.discard(self)
        if self in self._pool.idle:
            self._pool.idle.remove(self)

    # Reading responses.

    def _read(self, data: bytes) -> None:
        """Parse the bytes received so far of a response."""
        exchange = self._exchange
        pieces: list[bytes] = []
        try:
            if self._pending:
                data, self._pending = self._pending + data, b""
            position = 0
            while position < len(data) and self.state is UpstreamState.WAITING:
                position = self._read_head(exchange, data, position, pieces)
            if self.state is UpstreamState.RECEIVING:
                pieces += self._body.feed(data[position:])
        except ProtocolError as error:
            begun = self.state is UpstreamState.RECEIVING
            self.abort()
            exchange.relay(pieces)
            exchange.truncated() if begun else exchange.fail("malformed", error.reason)
            return
        if self.state is UpstreamState.RECEIVING and self._body.done:
            self._complete(exchange, pieces)
        elif pieces and self.state is not UpstreamState.CLOSED:
            exchange.relay(pieces)

    def _read_head(self, exchange: ResponseHandler, data: bytes, start: int, pieces: list[bytes]) -> int:
        """Read one head, interim or final; return where it ends. Nothing is copied: there may be thousands."""
        end = data.find(b"\r\n\r\n", start) + 4
        if (end if end >= 4 else len(data)) - start > self._pool.max_head_size:
            raise ProtocolError(502, "the origin's response has too long a head")
        if end < 4:
            self._pending = data[start:]
            check_response_start(self._pending)
            return len(data)
        head = parse_response_head(data[start:end])
        if head.status == 101:
            exchange.switch(head, data[end:])
            return len(data)
        if head.status < 200:
            pieces += exchange.interim_head(head)
            return end
        beginning, self._body = exchange.final_head(head)
        self._keep_alive = head.keep_alive
        self.state = UpstreamState.RECEIVING
        pieces.append(beginning)
        return end

    def _complete(self, exchange: ResponseHandler, pieces: list[bytes]) -> None:
        body = self._body
        if isinstance(body, ChunkedBody) and body.framed:
            pieces.append(b"0\r\n%b\r\n" % forwarded_trailers(body.trailers))
        self._end_response()
        exchange.relay(pieces)
        # After bytes beyond the announced length the connection must not be used again.
        exchange.end(reusable=self._keep_alive and not body.rest)

    def _end_response(self) -> None:
        self.state = UpstreamState.IDLE
        self._exchange = cast("ResponseHandler", None)
        self.reused = True
