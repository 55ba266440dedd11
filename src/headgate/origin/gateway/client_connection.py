"""A connection of a client: reads its requests one after another, and has each decided on and answered.

Requests that a client sends ahead wait in a bounded buffer. The table of the states of a connection is in `states`.
"""

import asyncio
import math
from typing import cast

from headgate.errors import ProtocolError
from headgate.http.h1 import RequestBuffer, RequestHead, parse_request_head, parse_usual_request_head
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.exchange import ProxiedExchange
from headgate.origin.gateway.flow_control import FlowControl
from headgate.origin.gateway.forwarding import forwarded_request_head
from headgate.origin.gateway.request_admission import RequestAdmission
from headgate.origin.gateway.responses import (
    FileResponse,
    connection_limit_response,
    gateway_problem,
    serialize,
)
from headgate.origin.gateway.states import CLIENT_TRANSITIONS, READY, ClientEvent, ClientState
from headgate.origin.gateway.tunnel import reset_on_close
from headgate.origin.permits import Permit
from headgate.origin.response import Response

MAX_BUFFERED = 65536
"""Bytes sent ahead that are kept while a request is under way."""
MAX_REQUESTS_PER_TURN = 32
"""Requests handled per turn of the event loop: one read may contain thousands."""
MAX_DISCARDED_BODY = 65536
"""Bytes of an unused request body that are read to keep the connection; for a longer body it is closed."""
LINGER_TIMEOUT = 2.0
"""Seconds a connection is still read after the last response, so that the client can read that (9112 9.6)."""

_NOT_SERVED = frozenset({b"CONNECT", b"TRACE"})
"""CONNECT would open a tunnel to any host; TRACE would show the client the fields added for the origin."""


class ClientConnection(asyncio.Protocol):
    """One connection of a client; made by the gateway's listener."""

    __slots__ = (
        "_admission", "_buffer", "_context", "_eof", "_flow", "_transport", "_unread", "_writable", "client",
        "deadline", "exchange", "state",
    )  # fmt: skip

    def __init__(self, context: GatewayContext) -> None:
        self.state = ClientState.IDLE
        self.client = b""
        """The client that its connections are counted for; empty when they are not counted."""
        self.exchange: ProxiedExchange | FileResponse | None = None
        """The source of the response under way; None in every state but RESPONDING."""
        self.deadline = math.inf
        """The time of the gateway's coarse clock at which `expire` is due."""
        self._context = context
        self._buffer = RequestBuffer()
        self._writable = True
        self._eof = False
        self._unread = 0  # bytes of a body that is discarded
        self._admission = cast("RequestAdmission", None)
        self._flow = cast("FlowControl", None)
        self._transport = cast("asyncio.Transport", None)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: see `asyncio.Protocol`."""
        context = self._context
        self._transport = cast("asyncio.Transport", transport)
        self._flow = FlowControl(self._transport)
        self._admission = RequestAdmission(context, self, self._transport)
        self.deadline = context.now + context.timeouts.header
        if reason := context.registry.enter(self, self._admission.view.info):
            context.counters.connections_refused[reason] += 1
            self._reject_connection(connection_limit_response(reason))

    def connection_lost(self, _error: Exception | None) -> None:
        """End: see `asyncio.Protocol`."""
        self._move(ClientEvent.CLOSE)
        self._context.registry.leave(self)
        self._admission.cancel()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()

    def data_received(self, data: bytes) -> None:
        """Read requests; in the usual case `data` is exactly one head of a usual request."""
        state = self.state
        if state is ClientState.IDLE and self._writable:
            request = parse_usual_request_head(data, self._context.limits)
            if request is not None:
                self._handle(request)
                return
        elif state is ClientState.RESPONDING:
            if self.exchange is not None and self.exchange.takes_body:
                data = self.exchange.feed(data)
        elif state is ClientState.DISCARDING:
            data = self._discard(data)
        if data and self.state is not ClientState.LINGERING and self.state is not ClientState.CLOSED:
            self._buffer.append(data)
            self._process_buffer()
            self._limit_buffer()

    def eof_received(self) -> bool:
        """The client sends no more; returns whether to stay open for the responses under way."""
        self._eof = True
        # A half-closed connection cannot be told from that of a client that has left. It stays open where that costs no
        # permit: not in a queue, not with a request at an origin with a concurrency limit.
        permits = self._context.permits
        is_limited = permits is not None and permits.limit.settings.mode == "enforce"
        if is_limited and not isinstance(self.exchange, FileResponse):
            return False
        stays = self._transport.can_write_eof()  # TLS cannot stay half open; asyncio warns if it is asked to
        if self.state is ClientState.RESPONDING:
            return stays and self.exchange is not None and not self.exchange.takes_body
        if len(self._buffer) and self.state in {ClientState.IDLE, ClientState.READING_HEAD, ClientState.WAITING}:
            self._continue()  # the buffer may contain whole requests
            return stays
        return False

    def pause_writing(self) -> None:
        """The client reads slowly: stop reading the response."""
        self._writable = False
        if self.exchange is not None:
            self.renew_deadline()
            self.exchange.pause_response()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writable = True
        if self.exchange is not None:
            self.renew_deadline()
            self.exchange.resume_response()
        else:
            self._continue()

    # What the exchange calls: see `Downstream`.

    def renew_deadline(self) -> None:
        """Set a new deadline, after progress."""
        context, exchange = self._context, self.exchange
        if exchange is not None and (exchange.waits_for_client or not self._writable):
            seconds = context.timeouts.idle
        elif exchange is not None and exchange.begun:
            seconds = context.timeouts.response_body or math.inf
        else:
            seconds = context.timeouts.response
        self.deadline = context.now + seconds

    def write(self, data: bytes) -> None:
        """Send bytes of a response."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def respond_with(self, message: bytes) -> None:
        """Send a whole response and read the next request."""
        self.exchange = None
        self._move(ClientEvent.DONE)
        self._transport.write(message)
        self.deadline = self._context.now + self._context.timeouts.idle
        if len(self._buffer) or self._eof:
            self._continue()

    def complete(self, *, keep: bool, unread: bool = False) -> None:
        """Read the next request, or close, after a whole response."""
        self._end_exchange()
        self.deadline = self._context.now + self._context.timeouts.idle
        if unread:
            self._linger()
        elif not keep or self._context.draining:
            self._close()
        else:
            self._move(ClientEvent.DONE)
            self._continue()

    def fail(self, request: RequestHead, error: ProtocolError, *, unread: bool) -> None:
        """Answer with an error of the gateway; no byte of a response has been sent."""
        self._end_exchange()
        response = gateway_problem(error.status, error.reason)
        if unread:
            self.write(serialize(response, keep=False))
            self._linger()
        else:
            self.answer(response, request, body_was_read=True)
            self._continue()

    def refuse_body(self, error: ProtocolError, *, begun: bool) -> None:
        """Answer a request whose body is malformed; only close if the response has begun."""
        if begun:
            self.abort()
        else:
            self._end_exchange()
            self._refuse(error)

    def abort(self, *, reset: bool = False) -> None:
        """Close at once."""
        self.exchange = None
        self._move(ClientEvent.CLOSE)
        if reset:
            reset_on_close(self._transport)
        self._transport.abort()

    def pause_request(self) -> None:
        """Stop reading the request's body: the origin is slow."""
        self._flow.set_upstream_slow(True)

    def resume_request(self) -> None:
        """Read the request's body again."""
        self._flow.set_upstream_slow(False)

    def become_tunnel(self, origin: asyncio.Transport, greeting: bytes) -> None:
        """Join both connections to a tunnel, and pass on the bytes that both sides have sent already."""
        self.exchange = None
        self._move(ClientEvent.CLOSE)
        self._flow.release()
        tunnel = self._context.registry.open_tunnel(self, self._transport, origin)
        tunnel.client_end.transport.write(greeting)
        if early := self._buffer.take():
            tunnel.origin_end.transport.write(early)
        if self._eof:
            self._transport.close()

    # What the gateway calls.

    def expire(self) -> None:
        """End the wait whose deadline has passed. The deadline of a head is not moved by a client that reads."""
        if self.state is not ClientState.READING_HEAD and self._flow.client_reads():
            self.deadline = self._context.now + self._context.timeouts.idle
            return
        exchange = self.exchange
        if exchange is not None and self._writable:
            if exchange.waits_for_client and not self._flow.upstream_slow:
                begun = exchange.begun
                exchange.abandon()
                self.refuse_body(ProtocolError(408, "request body timeout"), begun=begun)
            else:
                exchange.time_out()
        elif self.state is ClientState.READING_HEAD and len(self._buffer) and self._writable:
            self._refuse(ProtocolError(408, "request header timeout"))
        elif not self._admission.expire():
            self._transport.abort()  # connection_lost() then ends the exchange

    def drain(self) -> None:
        """Close after the response under way, or at once if there is none."""
        if self.exchange is not None:
            self.exchange.drain()
        elif self.state in READY and not len(self._buffer):
            self._close()

    # Requests, one after another.

    def _move(self, event: ClientEvent) -> None:
        self.state = CLIENT_TRANSITIONS[self.state][event]

    def _limit_buffer(self) -> None:
        """Stop reading while the buffer is full."""
        is_ready = self.state in READY and self._writable
        self._flow.set_buffer_full(len(self._buffer) > MAX_BUFFERED and not is_ready)

    def _continue(self) -> None:
        """Handle the requests that the client sent ahead."""
        if self.state is ClientState.WAITING and self._writable:
            self._move(ClientEvent.RESUMED)
        self._process_buffer()
        self._limit_buffer()
        if self._eof and self._writable:
            if self.state is ClientState.READING_HEAD and len(self._buffer):
                self._refuse(ProtocolError(400, "the request ends within its head"))
            elif self.state in READY:
                self._close()

    def _process_buffer(self) -> None:
        """Handle buffered requests until one is incomplete or under way, or the client does not read."""
        limits = self._context.limits
        for _ in range(MAX_REQUESTS_PER_TURN):
            if not (len(self._buffer) and self._writable and self.state in READY):
                break
            try:
                head = self._buffer.next_head(limits)
                request = parse_request_head(head, limits) if head is not None else None
                if request is not None and request.method in _NOT_SERVED:
                    raise ProtocolError(405, f"{request.method.decode()} is not served here")
            except ProtocolError as error:
                self._refuse(error)
                return
            if request is None:
                # Once per request: empty lines before it do not move the deadline.
                if self.state is ClientState.IDLE and len(self._buffer):
                    self._move(ClientEvent.HEAD_STARTED)
                    self.deadline = self._context.now + self._context.timeouts.header
                return
            self._handle(request)
        else:
            asyncio.get_running_loop().call_soon(self._continue)
        if self.state is ClientState.IDLE and len(self._buffer):
            self._move(ClientEvent.HELD_BACK)

    def _handle(self, request: RequestHead) -> None:
        self._move(ClientEvent.REQUEST_READ)
        self._admission.decide(request)

    # What the admission calls: see `Requester`.

    def forward(self, request: RequestHead, permit: Permit | None) -> None:
        """Forward a request."""
        context = self._context
        exchange = self.exchange = ProxiedExchange(context, self, request, permit)  # first: it releases the permit
        self._move(ClientEvent.RESPONSE_STARTED)
        self.deadline = context.now + context.timeouts.response
        exchange.start(forwarded_request_head(request, self._admission.view.info, context.pool.authority))
        if len(self._buffer) and exchange.takes_body:
            self._buffer.append(exchange.feed(self._buffer.take()))
            self._limit_buffer()

    def hold(self, event: ClientEvent) -> None:
        """Wait: the request is delayed or queued."""
        self._move(event)
        timeout = math.inf if event is ClientEvent.DELAYED else self._context.timeouts.response
        self.deadline = self._context.now + timeout

    def resume(self) -> None:
        """End the wait."""
        self._move(ClientEvent.RELEASED)

    def read_on(self) -> None:
        """Handle the requests that were sent ahead, in the next turn: this may be the turn of another connection."""
        if self.state is ClientState.IDLE and len(self._buffer):
            self._move(ClientEvent.HELD_BACK)
            asyncio.get_running_loop().call_soon(self._continue)

    def _end_exchange(self) -> None:
        """Drop the exchange, and read again if its origin was slow to take the body."""
        self.exchange = None
        if self._flow.upstream_slow:
            self.resume_request()

    # Responses made here, and the end.

    def answer(self, response: Response, request: RequestHead, *, body_was_read: bool = False) -> None:
        """Send a response of the gateway; discard the request's body if it is short, else close after the response."""
        unread = request.has_body and not body_was_read
        is_short = unread and not request.expects_continue and 0 < request.length <= MAX_DISCARDED_BODY
        discards = is_short and response.source is None
        keep = request.keep_alive and (discards or not unread) and not self._context.draining
        self.write(serialize(response, keep=keep, minor=request.minor, without_body=request.method == b"HEAD"))
        self.deadline = self._context.now + self._context.timeouts.idle
        if response.source is not None:
            self.exchange = FileResponse(self, self._transport, response.source, keep=keep, unread=unread)
            self._move(ClientEvent.RESPONSE_STARTED)
            self.exchange.start()
        elif not keep:
            self._linger() if unread or len(self._buffer) else self._close()
        elif discards:
            self._move(ClientEvent.ANSWERED_EARLY)
            self._unread = request.length
            self._buffer.append(self._discard(self._buffer.take()))
        else:
            self._move(ClientEvent.DONE)

    def _discard(self, data: bytes) -> bytes:
        """Discard the body of an answered request; return the bytes after it."""
        unread = self._unread
        self._unread = max(0, unread - len(data))
        if not self._unread:
            self._move(ClientEvent.DONE)
            if self._context.draining:
                self._close()
        return data[unread:]

    def _refuse(self, error: ProtocolError) -> None:
        """Answer a malformed request and close: where the next one begins is unknown."""
        self._context.counters.malformed += 1
        self.write(serialize(gateway_problem(error.status, error.reason, allow=self._context.allow), keep=False))
        self._linger()

    def _linger(self) -> None:
        """Close, but read on for a while: with unread bytes the system would reset the connection (9112 9.6)."""
        self._move(ClientEvent.LAST_RESPONSE)
        self._buffer.take()
        self.deadline = self._context.now + LINGER_TIMEOUT
        if self._eof:
            self._transport.close()
        elif not self._transport.is_closing():
            self._flow.release()
            if self._transport.can_write_eof():
                try:
                    self._transport.write_eof()
                except OSError:  # the client has reset the connection, and the event loop has not noticed it yet
                    self._transport.abort()

    def _reject_connection(self, response: Response) -> None:
        """Answer a connection over a limit, and close it; it is not registered."""
        self._move(ClientEvent.CLOSE)
        self.write(serialize(response, keep=False))
        self._transport.close()
        # With TLS, close() waits for the client.
        asyncio.get_running_loop().call_later(LINGER_TIMEOUT, self._transport.abort)

    def _close(self) -> None:
        self._move(ClientEvent.CLOSE)
        self.deadline = self._context.now + self._context.timeouts.response
        self._transport.close()
