"""The origin's side: connections to it, each carrying one exchange at a time, and the pool of idle ones.

A connection reads responses strictly and hands them to its `Exchange`; it decides nothing else. Times are those of
the gateway's coarse clock (`Pool.now`, moved on by the gateway's tick).
"""

import asyncio
from typing import TYPE_CHECKING, cast

from headgate.config.tree import Bounds
from headgate.origin.gateway.answer import Answer, check_answer_beginning, parse_answer, trailer_lines
from headgate.origin.gateway.chunked import BodyReader, ChunkedBody, UnboundedBody
from headgate.origin.gateway.refusal import Refusal

if TYPE_CHECKING:
    from headgate.origin.gateway.exchange import Exchange

__all__ = ["OriginConnection", "Pool"]

_MOST_IDLE = 512
_LONGEST_IDLE = 4.0
"""Seconds; common origins close after 5 and more."""
_FRESH = 1.0
"""Seconds a connection may have been idle to be given a request that cannot be repeated."""
_LONGEST_MEMO = 4096


class Pool:
    """The connections to one origin; idle ones are used last in, first out, so that those not needed grow old."""

    def __init__(self, host: str, port: int, bounds: Bounds) -> None:
        self.host = host
        self.port = port
        self.bounds = bounds
        self.authority = f"[{host}]:{port}".encode() if ":" in host else f"{host}:{port}".encode()
        """What stands for Host when an agent has none to say."""
        self.now = 0.0
        """Seconds of the gateway's coarse clock."""
        self.idle: list[OriginConnection] = []
        self.open: set[OriginConnection] = set()

    def take(self, *, repeatable: bool) -> "OriginConnection | None":
        """Take an idle connection out of the pool; None when a new one must be made."""
        idle = self.idle
        while idle and (repeatable or self.now - idle[-1].idle_since <= _FRESH):
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    async def connect(self, seconds: float) -> "OriginConnection":
        """Make a connection; raises `OSError`, and `TimeoutError` after `seconds`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            _, protocol = await loop.create_connection(lambda: OriginConnection(self), self.host, self.port)
        return protocol

    def give_back(self, connection: "OriginConnection") -> None:
        """Take back a connection that has nothing left to say."""
        if len(self.idle) < _MOST_IDLE:
            connection.idle_since = self.now
            self.idle.append(connection)
        else:
            connection.close()

    def tick(self, now: float) -> None:
        """Move the clock on, and close what has been idle for too long."""
        self.now = now
        # Of all that are open, not only of the idle ones: an agent may leave in the very moment a connection is made.
        for connection in [one for one in self.open if one.exchange is None and now - one.idle_since > _LONGEST_IDLE]:
            connection.close()

    def close(self) -> None:
        """Close every connection at once."""
        for connection in list(self.open):
            connection.abort()


class OriginConnection(asyncio.Protocol):
    """One connection to the origin."""

    __slots__ = (
        "_answer", "_body", "_memo", "_memo_answer", "_paused", "_pending", "_pool", "_transport", "exchange",
        "idle_since", "reused",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self.exchange: Exchange | None = None
        self.idle_since = pool.now
        self.reused = False
        """Whether an earlier exchange went over this connection: then it may have died unnoticed."""
        self._pool = pool
        self._transport = cast("asyncio.Transport", None)
        self._pending = b""
        self._answer: Answer | None = None
        self._body = cast("BodyReader", None)
        self._memo = b""
        self._memo_answer = cast("Answer", None)
        self._paused = False

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: see `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._pool.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End: see `asyncio.Protocol`."""
        self._leave_pool()
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        if self._answer is None:
            exchange.lost(self, said_nothing=not self._pending)
        elif isinstance(self._body, UnboundedBody) and error is None:
            pieces = [b"0\r\n\r\n"] if self._body.framed else []
            exchange.relay(pieces)
            exchange.end()
        else:
            exchange.truncated()

    def eof_received(self) -> bool:
        """Hear that the origin will send no more: the loop closes the connection, and nobody shall get it."""
        self._leave_pool()
        return False

    def pause_writing(self) -> None:
        """Hold the agent back: the origin reads slowly."""
        if self.exchange is not None:
            self.exchange.hold_agent()

    def resume_writing(self) -> None:
        """Let the agent go on."""
        if self.exchange is not None:
            self.exchange.release_agent()

    def data_received(self, data: bytes) -> None:
        """Read what the origin says; a plain response that comes whole, in one piece, takes the short way."""
        exchange = self.exchange
        if exchange is None:
            self.abort()  # an answer to nothing: nobody can say what it belongs to
            return
        if self._answer is None and not self._pending and exchange.plain:
            end = data.find(b"\r\n\r\n") + 4
            if data[:end] == self._memo:
                answer = self._memo_answer
                if len(data) - end == answer.length:
                    self.exchange = None
                    self.reused = True
                    exchange.answered(self, answer.whole + data[end:])
                    return
        self._read(exchange, data)

    # What the exchange calls.

    @property
    def is_open(self) -> bool:
        """Whether it has not begun to close."""
        return not self._transport.is_closing()

    @property
    def is_drained(self) -> bool:
        """Whether all that was sent has left for the origin."""
        return not self._transport.get_write_buffer_size()

    def begin(self, exchange: "Exchange", head: bytes) -> None:
        """Send the head of a request."""
        self.exchange = exchange
        self._transport.write(head)

    def send(self, pieces: list[bytes]) -> None:
        """Send pieces of the request's body."""
        # Not writelines(): in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 it never holds the writer back
        # (CVE-2024-12254).
        self._transport.write(b"".join(pieces))

    def hold(self) -> None:
        """Read no more: the agent reads slowly."""
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def release(self) -> None:
        """Read again."""
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after what is written has been sent."""
        self._leave_pool()
        self.exchange = None
        self._transport.close()

    def abort(self) -> None:
        """Close at once, sending nothing more; the exchange, if any, hears nothing of it."""
        self._leave_pool()
        self.exchange = None
        self._transport.abort()

    def hand_over(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """Give the connection away to `protocol`; returns its transport."""
        self._leave_pool()
        self.exchange = None
        self._transport.set_protocol(protocol)
        return self._transport

    # Reading responses.

    def _leave_pool(self) -> None:
        self._pool.open.discard(self)
        if self in self._pool.idle:
            self._pool.idle.remove(self)

    def _read(self, exchange: "Exchange", data: bytes) -> None:
        """Read as much of the response as there is, in as many pieces as it comes."""
        pieces: list[bytes] = []
        try:
            if self._pending:
                data, self._pending = self._pending + data, b""
            position = 0
            while position < len(data) and self._answer is None and self.exchange is exchange:
                position = self._read_head(exchange, data, position, pieces)
            if self._answer is not None:
                pieces += self._body.feed(data[position:])
        except Refusal as refusal:
            begun = self._answer is not None
            self.abort()
            exchange.relay(pieces)
            exchange.truncated() if begun else exchange.fail(502, refusal.reason)
            return
        if self.exchange is exchange:
            self._pass_on(exchange, pieces)

    def _read_head(self, exchange: "Exchange", data: bytes, start: int, pieces: list[bytes]) -> int:
        """Read one head, interim or final; return where it ends. Interim ones may come by the thousand: no copies."""
        end = data.find(b"\r\n\r\n", start) + 4
        if (end if end >= 4 else len(data)) - start > self._pool.bounds.head_bytes:
            raise Refusal(502, "the origin's response has too long a head")
        if end < 4:
            self._pending = data[start:]
            check_answer_beginning(self._pending)
            return len(data)
        head = data[start:end]
        answer = parse_answer(head)
        if answer.status == 101:
            exchange.switch(self, answer, data[end:])
            return len(data)
        if answer.status < 200:
            pieces += exchange.interim(answer)
            return end
        if answer.plain and len(head) <= _LONGEST_MEMO:
            self._memo, self._memo_answer = head, answer
        beginning, self._body = exchange.head(answer)
        self._answer = answer
        pieces.append(beginning)
        return end

    def _pass_on(self, exchange: "Exchange", pieces: list[bytes]) -> None:
        answer, body = self._answer, self._body
        if answer is None or not body.done:
            exchange.relay(pieces)
            return
        if isinstance(body, ChunkedBody) and body.framed:
            pieces.append(b"0\r\n%b\r\n" % trailer_lines(body.trailers))
        self.exchange = self._answer = None
        self.reused = True
        # More than was announced belongs to no response: what came is kept from everybody.
        stays = answer.keep_alive and not body.rest
        exchange.relay(pieces)
        exchange.end(self, stays=stays)
