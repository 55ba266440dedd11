"""A client connection that speaks HTTP/1.1: one request head after another, until one becomes a tunnel.

States: READING a head; DECIDING on a CONNECT; RESPONDING while a response is not completely sent; CLOSING while the
last one is not; LINGERING while input is discarded, so that the last response is not lost to a reset; HANDED_OVER to a
tunnel; CLOSED. While a decision is pending the client may send ahead, up to a limit, and is noticed when it leaves.
"""

import asyncio
import enum
import math
import socket
import ssl
from http import HTTPStatus
from typing import Final, Literal

from headgate.errors import ProtocolError
from headgate.http.h1.request import RequestBuffer, RequestHead, RequestLimits, parse_request_head
from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect, Services
from headgate.proxy.limits import AbuseLimiter
from headgate.proxy.poller import READ, WRITE
from headgate.proxy.sockets import WOULD_BLOCK, record_overhead, reset, shutdown_write

_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_BUFFER_SIZE: Final = 1 << 16
"""Bytes kept that were sent ahead of a decision or response; more stay with the client."""
_READ_SIZE: Final = 1 << 16
_LIMITS: Final = RequestLimits(head=1 << 14)
"""Limits of a CONNECT head, which holds a token and a few header fields of a browser."""


class Http1State(enum.Enum):
    """States of an HTTP/1.1 connection; the module's docstring explains them."""

    READING = enum.auto()
    DECIDING = enum.auto()
    RESPONDING = enum.auto()
    CLOSING = enum.auto()
    LINGERING = enum.auto()
    HANDED_OVER = enum.auto()
    CLOSED = enum.auto()


class Http1Connection:
    """One connection. `surplus` marks one above the limit of connections, whose requests are refused."""

    __slots__ = (
        "_abuse", "_buffer", "_client_ended", "_decision", "_events", "_head_started", "_keep_alive", "_loop_state",
        "_peer", "_services", "_socket", "_surplus", "_unsent", "deadline", "state",
    )  # fmt: skip

    bytes_passed = (0, 0)
    """An established tunnel is not counted here."""

    def __init__(
        self, services: Services, sock: socket.socket, peer: tuple[str, int], *, surplus: bool = False
    ) -> None:
        self._services = services
        self._loop_state = services.loop_state
        self._socket = sock
        self._peer = peer
        self._surplus = surplus
        self.state = Http1State.READING
        self._abuse = AbuseLimiter()
        self._buffer = RequestBuffer()
        self._head_started = False
        self._keep_alive = False  # what the request asks for that is decided on
        self._client_ended = False  # and what it sent before is still to be answered
        self._decision: asyncio.Task[None] | None = None
        self._unsent: bytes | memoryview = b""
        self._events = READ
        self.deadline = self._loop_state.now + services.timeouts.idle

    # What the poller and the server call.

    def ready(self, events: int) -> None:
        """Send and read what can be; see `Pollable`."""
        if events & WRITE:
            self._send(self._unsent)
            self._handle_requests()
        if events & READ and self._is_open:
            self._read()

    def expire(self) -> None:
        """Close: the client is too slow."""
        self.abort()

    def abort(self, *, with_reset: bool = False) -> None:
        """Close at once, and cancel a pending decision."""
        if not self._is_open:
            return
        self.state = Http1State.CLOSED
        self._loop_state.poller.drop(self._socket.fileno())
        if with_reset:
            reset(self._socket)
        else:
            self._socket.close()
        self._services.connection_closed(self)
        if self._decision is not None:
            self._decision.cancel()

    @property
    def tunnels(self) -> int:
        """1 while a decision is pending."""
        return int(self._decision is not None)

    def drain(self) -> None:
        """Go on: requests that follow are refused by the decision."""

    # Reading.

    def _read(self) -> None:
        data = self._loop_state.buffer
        try:
            count = self._socket.recv_into(data, _READ_SIZE)
        except ssl.SSLWantWriteError:
            self.abort()  # it renews its keys and reads no answer to that
            return
        except WOULD_BLOCK:
            return
        except OSError:
            self.abort()
            return
        if not count:
            self._handle_end()
        elif self.state is not Http1State.CLOSING and self.state is not Http1State.LINGERING:
            # Once for each request: empty lines before it, however many, do not extend the time.
            if not self._head_started and self.state is not Http1State.DECIDING:
                self._head_started = True
                self.deadline = self._loop_state.now + self._services.timeouts.head
            self._buffer.append(bytes(data[:count]))
            self._handle_requests()
            if self._unsent and self._is_full:
                self._wait_for(WRITE)

    def _handle_end(self) -> None:
        """Close, unless a response is being sent, or data follows the head: then the client may wait for the answer."""
        is_waited_for = self.state is Http1State.DECIDING and len(self._buffer) > 0
        if self._unsent or is_waited_for:
            self._client_ended = True
            self._wait_for(self._events & ~READ)
        else:
            self.abort()

    def _handle_requests(self) -> None:
        """Handle one request after another, as long as heads are complete and each is answered at once.

        One read may contain thousands, but `_abuse` permits few of those that are answered at once: refusals.
        """
        while self.state is Http1State.READING and self._handle_request():
            pass
        if self.state is Http1State.READING or self.state is Http1State.DECIDING:
            self._wait_for(0 if self._client_ended or self._is_full else READ)

    def _handle_request(self) -> bool:
        """Handle the next request, if its head is complete; returns whether it was."""
        try:
            raw = self._buffer.next_head(_LIMITS)
            if raw is None:
                if self._client_ended:
                    self.abort()
                return False
            self._head_started = False
            head = parse_request_head(raw, _LIMITS)
        except ProtocolError:
            # Whatever is wrong, the boundaries of messages are lost, so the connection closes.
            self._refuse_early("malformed")
        else:
            self._respond_to(head)
        return True

    def _respond_to(self, head: RequestHead) -> None:
        if head.method != b"CONNECT":
            # After a body, whatever its framing, no further request is looked for.
            self._refuse_early("method", is_last=head.has_body or not head.keep_alive)
        elif self._surplus:
            self._refuse_early("connections")
        else:
            self._start_decision(head)

    # Decisions and responses.

    def _start_decision(self, head: RequestHead) -> None:
        self.state = Http1State.DECIDING
        self._keep_alive = head.keep_alive
        self.deadline = math.inf  # a decision has timeouts of its own
        connect = ConnectRequest(
            authority=head.target.decode("ascii"),
            fields=[(name.decode("ascii"), value.decode("latin-1")) for name, value in head.fields],
            peer=self._peer,
            head_bytes=len(head.raw) + record_overhead(self._socket),
            draining=self._services.draining,
        )
        self._decision = asyncio.get_running_loop().create_task(self._decide(connect))

    async def _decide(self, connect: ConnectRequest) -> None:
        """Await the decision and act on it in the same task: a callback would take another turn of the event loop."""
        try:
            outcome = await self._services.decide(connect)
        except BaseException as error:
            self._decision = None
            self.abort(with_reset=True)
            if not isinstance(error, Exception):
                raise
            context = {"message": "a decision failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            return
        self._decision = None
        if isinstance(outcome, AcceptedConnect):
            self._establish(outcome)
        elif self._is_open:
            self._refuse(outcome, is_last=not self._keep_alive)
            self._handle_requests()

    def _establish(self, accepted: AcceptedConnect) -> None:
        """Start the tunnel, if the client is still there."""
        try:
            is_sent = self._is_open and self._socket.send(_ESTABLISHED) == len(_ESTABLISHED)
        except OSError:
            is_sent = False
        if not is_sent:
            reset(accepted.socket)
            accepted.on_closed(0, 0, "client_gone")
            self.abort()
            return
        self._wait_for(READ)
        self.state = Http1State.HANDED_OVER
        self._services.connection_closed(self)
        self._services.start_tunnel(self._socket, accepted, self._buffer.take())

    def _refuse_early(self, reason: Literal["malformed", "method", "connections"], *, is_last: bool = True) -> None:
        """Refuse a request without a decision."""
        self._refuse(self._services.refuse_early(reason, self._peer), is_last=is_last)

    def _refuse(self, refused: RefusedConnect, *, is_last: bool) -> None:
        """Send a refusal; the connection closes after the last one, or after too many of them."""
        is_last |= self._abuse.add("failed requests", now=self._loop_state.now)
        self.state = Http1State.CLOSING if is_last else Http1State.RESPONDING
        self.deadline = self._loop_state.now + self._services.timeouts.idle
        self._send(response_head(refused, is_last=is_last))

    def _send(self, message: bytes | memoryview) -> None:
        """Send what the system takes now."""
        try:
            sent = self._socket.send(message) if message else 0
        except WOULD_BLOCK:
            sent = 0
        except OSError:
            self.abort()
            return
        self._unsent = message[sent:]
        if self._unsent:
            self._wait_for(WRITE if self._client_ended or self._is_full else READ | WRITE)
        elif self.state is Http1State.RESPONDING:
            self.state = Http1State.READING
        elif self.state is Http1State.CLOSING:
            self._linger()

    def _linger(self) -> None:
        """Send the end, but read on for a while: input that is not read would cause a reset (9112 9.6)."""
        self.state = Http1State.LINGERING
        self._buffer.take()
        if self._client_ended:
            self.abort()
            return
        self.deadline = self._loop_state.now + self._services.timeouts.linger
        shutdown_write(self._socket)
        self._wait_for(READ)

    # The life of the connection.

    @property
    def _is_open(self) -> bool:
        return self.state is not Http1State.CLOSED and self.state is not Http1State.HANDED_OVER

    @property
    def _is_full(self) -> bool:
        return len(self._buffer) >= _MAX_BUFFER_SIZE

    def _wait_for(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop_state.poller.modify(self._socket.fileno(), events)


def response_head(refused: RefusedConnect, *, is_last: bool) -> bytes:
    """Return a refusal as an HTTP/1.1 message; after the last one the connection closes."""
    lines = [f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in refused.fields]
    if is_last:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "Content-Length: 0", "\r\n"]).encode("latin-1")
