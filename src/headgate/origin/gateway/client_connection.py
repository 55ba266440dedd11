"""A connection of a client: reads its requests one after another, decides on each, and has it forwarded or answers it.

The rules of a request's domain come first; the concurrency limit decides on what they accept or have delayed. Requests
that a client sends ahead wait in a bounded buffer. The table of the states of a connection is in `states`.
"""

import asyncio
import math
import socket
import time
from binascii import hexlify
from random import getrandbits
from typing import cast

from headgate.errors import ProtocolError
from headgate.http.h1 import RequestBuffer, RequestHead, parse_request_head, parse_usual_request_head
from headgate.limit import Accounting
from headgate.origin.delay import Delay
from headgate.origin.gateway.buffer import SpooledBuffer
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.exchange import ProxiedExchange
from headgate.origin.gateway.flow_control import FlowControl, send_progress
from headgate.origin.gateway.forwarding import forwarded_request_head
from headgate.origin.gateway.listener import PLAIN, ListenerSettings, read_proxy_header
from headgate.origin.gateway.policy import ClientView, accept_of, flow_of, passed_request_id, refusal
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.gateway.responses import (
    FileResponse,
    gateway_problem,
    serialize,
)
from headgate.origin.gateway.states import NEXT_STATES, READY, ClientState
from headgate.origin.gateway.tunnel import reset_on_close
from headgate.origin.permits import Permit, Permits, QueuedRequest
from headgate.origin.response import Response
from headgate.release import Status

MAX_BUFFERED = 65536
"""Bytes sent ahead that are kept while a request is under way."""
MAX_REQUESTS_PER_TURN = 32
"""Requests handled per turn of the event loop: one read may contain thousands."""
MAX_DISCARDED_BODY = 65536
"""Bytes of an unused request body that are read to keep the connection; for a longer body it is closed."""
LINGER_TIMEOUT = 2.0
"""Seconds a connection is still read after the last response, so that the client can read that (9112 9.6)."""

# An attribute of an Enum costs as much as a call.
_ACCEPTED, _IDLE, _RESPONDING = Status.ACCEPTED, ClientState.IDLE, ClientState.RESPONDING

_NOT_SERVED = frozenset({b"CONNECT", b"TRACE"})
"""CONNECT would open a tunnel to any host; TRACE would show the client the fields added for the origin."""


class ClientConnection(asyncio.Protocol):
    """One connection of a client, made by a listener of the gateway with these settings."""

    __slots__ = (
        "_buffer", "_collected", "_context", "_decide", "_eof", "_flow", "_listener", "_permits", "_preface", "_source",
        "_transport", "_unread", "_view", "_waits", "_writable", "client", "deadline", "exchange", "record", "state",
    )  # fmt: skip

    def __init__(self, context: GatewayContext, listener: ListenerSettings = PLAIN) -> None:
        self.state = ClientState.IDLE
        self.client = b""
        """The client that its connections are counted for; empty when they are not counted."""
        self.exchange: ProxiedExchange | FileResponse | None = None
        """The source of the response under way; None in every state but RESPONDING."""
        self.record: RequestRecord | None = None
        """The request under way."""
        self.deadline = math.inf
        """The time of the gateway's clock at which `expire` is due."""
        self._context = context
        self._listener = listener
        self._decide = listener.decide
        self._preface: asyncio.Task[None] | None = None
        self._source: str | None = None  # the address of the client, if a header of the PROXY protocol has it
        self._buffer = RequestBuffer()
        self._writable = True
        self._eof = False
        self._collected: ProxiedExchange | None = None  # with the whole body of a request that waits for a permit
        self._unread = 0  # bytes of a body that is discarded
        self._waits: Delay | QueuedRequest | None = None
        self._permits: Permits | None = None  # those that a queued request waits for
        self._view = cast("ClientView", None)  # the connection under the policy of its last request
        self._flow = cast("FlowControl", None)
        self._transport = cast("asyncio.Transport", None)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: see `asyncio.Protocol`. After a PROXY header or a handshake of TLS, it is called again."""
        context, listener, is_new = self._context, self._listener, self.state is ClientState.IDLE
        self._transport = cast("asyncio.Transport", transport)
        self._flow = FlowControl(self._transport)
        self._view = ClientView.of(context.policy, self._transport, self._source)
        self.deadline = context.clock() + context.timeouts.header
        if not is_new:
            self._move(ClientState.IDLE)
            if listener.proxy_protocol and listener.tls is None and not self._count_client():
                self._reject_connection("client_limit")
        elif listener.proxy_protocol and not self._view.info.trusted:
            context.counters.proxy_headers_refused["untrusted"] += 1
            self._move(ClientState.CLOSED)
            self._transport.abort()
        elif reason := context.registry.enter(self, self._view.info):
            context.counters.connections_refused[reason] += 1
            self._reject_connection(reason)
        elif listener.tls is None and not listener.proxy_protocol:
            context.registry.idle[self] = None
        else:
            self._begin_preface()

    def _begin_preface(self) -> None:
        self._move(ClientState.PREFACE)
        self.deadline = math.inf  # the event loop's
        self._transport.set_protocol(asyncio.Protocol())
        try:
            # Not `start_tls`: that of uvloop loses what the client has sent before it is called.
            sock = self._transport.get_extra_info("socket").dup()
        except OSError:
            self.connection_lost(None)
        else:
            sock.settimeout(0.0)
            self._preface = asyncio.get_running_loop().create_task(self._run_preface(sock))
        self._transport.abort()

    async def _run_preface(self, sock: socket.socket) -> None:
        """Read the header of the PROXY protocol, and have the event loop run the handshake, if there are."""
        loop, listener, seconds = asyncio.get_running_loop(), self._listener, self._context.timeouts.header
        is_known = not listener.proxy_protocol
        try:
            is_known = is_known or await self._learn_client(sock, seconds)
            if is_known:
                tls = listener.tls.context if listener.tls is not None else None
                await loop.connect_accepted_socket(
                    lambda: self, sock, ssl=tls, ssl_handshake_timeout=seconds if tls else None
                )
                return
        except (OSError, asyncio.CancelledError):
            self._context.counters.handshakes_failed += is_known
        finally:
            self._preface = None
        if not is_known:
            sock.close()  # otherwise it belongs to the event loop
        self.connection_lost(None)

    async def _learn_client(self, sock: socket.socket, seconds: float) -> bool:
        """Read the header of the PROXY protocol; returns whether the connection may go on."""
        context = self._context
        try:
            async with asyncio.timeout(seconds):
                self._source = await read_proxy_header(sock) or self._view.info.address
        except (ProtocolError, TimeoutError) as error:
            reason = "timeout" if isinstance(error, TimeoutError) else "malformed"
            context.counters.proxy_headers_refused[reason] += 1
            return False
        except OSError:  # the proxy has checked that the port is open
            return False
        self._view = ClientView.of(context.policy, self._transport, self._source)
        return self._listener.tls is None or self._count_client()

    def _count_client(self) -> bool:
        """Count the connection for the client that the proxy has named; returns False if that has its limit."""
        context = self._context
        is_counted = context.registry.count(self, self._view.info)
        context.counters.connections_refused["client_limit"] += not is_counted
        return is_counted

    def connection_lost(self, _error: Exception | None) -> None:
        """End: see `asyncio.Protocol`."""
        self._move(ClientState.CLOSED)
        self._context.registry.leave(self)
        waits, self._waits = self._waits, None
        if isinstance(waits, Delay):
            waits.cancel()
        elif waits is not None and self._permits is not None:
            self._permits.leave(waits)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()
        if self._collected is not None:
            self._collected.abandon()
        self._report("client")

    def data_received(self, data: bytes) -> None:
        """Read requests; in the usual case `data` is exactly one head of a usual request."""
        state = self.state
        if state is _IDLE and self._writable:
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

    # What an exchange or a file response calls: see `Downstream`.

    def renew_deadline(self) -> None:
        """Set a new deadline, after progress."""
        context, exchange = self._context, self.exchange
        if exchange is not None and (exchange.waits_for_client or not self._writable):
            seconds = context.timeouts.idle
        elif exchange is not None and exchange.begun:
            seconds = context.timeouts.response_body or math.inf
        else:
            seconds = context.timeouts.response
        self.deadline = context.clock() + seconds

    def write(self, data: bytes) -> None:
        """Send bytes of a response."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def complete(self, message: bytes = b"", *, keep: bool = True, unread: bool = False) -> None:
        """Send the end of a response; then read the next request, or close."""
        self.exchange = None
        if self._flow.upstream_slow:
            self.set_upstream_slow(slow=False)
        if message:
            self._transport.write(message)
        self._finish(keep=keep and not unread, unread=-1 if unread else 0)
        if self._eof or len(self._buffer):
            self._continue()

    def fail(self, error: ProtocolError, reason: str, *, unread: bool) -> None:
        """Answer the request under way with an error of the gateway; no byte of a response has been sent."""
        self.exchange = None
        if self._flow.upstream_slow:
            self.set_upstream_slow(slow=False)
        record = self.record
        assert record is not None
        record.reason = reason
        accept = accept_of(record.request) if record.request is not None else None
        page = self._view.policy.error_page
        response = gateway_problem(error.status, error.reason, accept, page=page, allow=self._context.allow)
        self._answer(response, unread=-1 if unread else 0)
        if self.state is not ClientState.LINGERING:
            self._continue()

    def abort(self, reason: str, *, reset: bool = False) -> None:
        """Close at once."""
        self.exchange = None
        self._report(reason)
        self._move(ClientState.CLOSED)
        if self._preface is not None:
            self._preface.cancel()
        if reset:
            reset_on_close(self._transport)
        self._transport.abort()

    def set_upstream_slow(self, *, slow: bool) -> None:
        """Stop reading the request's body, or read it again: the origin is slow, or is not any more."""
        self._flow.set_upstream_slow(slow)

    def response_buffer(self) -> SpooledBuffer | None:
        """Return a buffer for a response that the client reads slowly; None if responses are not buffered."""
        return self._context.buffers.for_response()

    def become_tunnel(self, origin: asyncio.Transport, greeting: bytes) -> None:
        """Join both connections to a tunnel, and pass on the bytes that both sides have sent already."""
        self.exchange = None
        if self._transport.is_closing():  # with TLS, the end of this connection is already on its way to this protocol
            origin.abort()
            return
        self._report("tunnel")
        self._move(ClientState.CLOSED)
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
            context, exchange = self._context, self.exchange
            self.deadline = context.clock() + (context.idle_timeout if exchange is None else context.timeouts.idle)
            return
        exchange = self.exchange
        if exchange is not None and self._writable:
            exchange.time_out(body_awaited=exchange.waits_for_client and not self._flow.upstream_slow)
        elif self.state is ClientState.READING_HEAD and len(self._buffer) and self._writable:
            self._refuse(ProtocolError(408, "request header timeout"))
        elif isinstance(self._waits, QueuedRequest) and self._permits is not None:
            self._permits.expire(self._waits)
        else:
            self._transport.abort()  # connection_lost() then ends the exchange

    def drain(self) -> None:
        """Close after the response under way; without one, after the next request, or if none comes soon."""
        if self.exchange is not None:
            self.exchange.drain()
        elif self.state is ClientState.IDLE:
            self.deadline = min(self.deadline, self._context.clock() + self._context.idle_timeout)

    def give_way(self) -> bool:
        """Close an idle connection, unless its client still receives a response; returns whether it is closed."""
        if send_progress(self._transport) is not None:
            return False
        self._context.counters.idle_closed += 1
        self.abort("idle")
        return True

    # Requests, one after another.

    def _move(self, state: ClientState) -> None:
        assert state in NEXT_STATES[self.state], f"{self.state} to {state}"
        if state is ClientState.IDLE:
            self._context.registry.idle[self] = None
        elif self.state is ClientState.IDLE:
            self._context.registry.idle.pop(self, None)
        self.state = state

    def _limit_buffer(self) -> None:
        """Stop reading while the buffer is full."""
        is_ready = self.state in READY and self._writable
        self._flow.set_buffer_full(len(self._buffer) > MAX_BUFFERED and not is_ready)

    def _continue(self) -> None:
        """Handle the requests that the client sent ahead."""
        if self.state is ClientState.WAITING and self._writable:
            self._move(ClientState.IDLE)
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
                    self._move(ClientState.READING_HEAD)
                    self.deadline = self._context.clock() + self._context.timeouts.header
                return
            self._handle(request)
        else:
            asyncio.get_running_loop().call_soon(self._continue)
        if self.state is ClientState.IDLE and len(self._buffer):
            self._move(ClientState.WAITING)

    def _handle(self, request: RequestHead) -> None:
        """Have a request forwarded or answered, now or later."""
        context, view = self._context, self._view
        context.registry.idle.pop(self, None)  # as `_move`, which costs more
        self.state = _RESPONDING
        if context.policy is not view.policy:
            view = self._view = ClientView.of(context.policy, self._transport, self._source)
        request_id = b"" if request.forwardable else passed_request_id(request, view)
        request_id = request_id or hexlify(getrandbits(64).to_bytes(8))
        record = self.record = RequestRecord(view.info.address, time.time(), context.clock(), request, request_id)
        response = self._decide(record, request, view, context.counters)
        if response is not None:
            self._answer_new(response, request)
        elif record.accounting is None or record.accounting.status is _ACCEPTED:
            if request.forwardable and context.permits is None:  # the usual case
                self._forward(record, request, None, record.start)
            else:
                self._proceed(record, request, record.start)
        else:
            self._delay(record, request, record.accounting)

    def _delay(self, record: RequestRecord, request: RequestHead, accounting: Accounting) -> None:
        def release() -> None:
            if self._waits is not None:
                self._waits = None
                self._move(ClientState.RESPONDING)
                self._proceed(record, request, self._context.clock())
                self._read_on()

        self._move(ClientState.DELAYED)
        self.deadline = math.inf
        self._waits = Delay(accounting, self._view.policy.gatekeeper, release)

    def _proceed(self, record: RequestRecord, request: RequestHead, now: float) -> None:
        """Forward a request that no rule holds any more: after its body if that is read first, and with a permit."""
        context = self._context
        buffer = None
        is_whole = 0 <= request.length <= len(self._buffer) and not request.expects_continue
        if not request.forwardable and self._collected is None and request.has_body and not is_whole:
            buffer = context.buffers.for_request()
        if buffer is not None:
            self._collect(record, request, buffer, now)
        elif context.permits is None:
            self._forward(record, request, None, now)
        else:
            self._admit(record, request, context.permits)

    def _collect(self, record: RequestRecord, request: RequestHead, buffer: SpooledBuffer, start: float) -> None:
        """Read the body of a request into `buffer` before it is forwarded."""
        context = self._context

        def received() -> None:
            self._collected, self.exchange = cast("ProxiedExchange", self.exchange), None
            now = context.clock()
            record.upload = now - start
            self._proceed(record, request, now)

        exchange = self.exchange = ProxiedExchange(self, record, request, context.balancer, None)
        exchange.collect(buffer, received)
        self.deadline = context.clock() + context.timeouts.idle
        early = self._buffer.take()
        if early:
            self._buffer.append(exchange.feed(early))
            self._limit_buffer()
        elif request.expects_continue:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _admit(self, record: RequestRecord, request: RequestHead, permits: Permits) -> None:
        """Forward a request if there is a permit for it, otherwise queue it."""
        permit = permits.take()
        if permit is not None:
            self._forward(record, request, permit, self._context.clock())
            return

        def wake() -> None:
            self._waits = None
            self._move(ClientState.RESPONDING)
            self._carry_out(record, request, queued)
            self._read_on()

        priority = self._view.policy.priorities.get(record.domain, "people")
        queued = QueuedRequest(priority, flow_of(record, request, self._view), permits.clock(), wake)
        permits.queue(queued)
        if queued.is_decided:
            self._carry_out(record, request, queued)
        else:
            self._move(ClientState.QUEUED)
            self.deadline = self._context.clock() + self._context.timeouts.response
            self._waits, self._permits = queued, permits

    def _carry_out(self, record: RequestRecord, request: RequestHead, queued: QueuedRequest) -> None:
        """Forward or reject a request that was decided on."""
        if queued.permit is not None:
            self._forward(record, request, queued.permit, self._context.clock())
        else:
            record.wait = self._context.clock() - record.start
            response = refusal(record, request, self._view, queued.retry_after, self._context.counters)
            self._answer_new(response, request)

    def _forward(self, record: RequestRecord, request: RequestHead, permit: Permit | None, now: float) -> None:
        context, info = self._context, self._view.info
        if permit is not None:
            permit.counts_response = record.domain not in self._view.policy.uncounted
        # First: it releases the permit.
        exchange = self._collected
        if exchange is None:
            exchange = ProxiedExchange(self, record, request, context.balancer, permit)
        else:
            self._collected, exchange.permit = None, permit
        self.exchange = exchange
        record.wait = now - record.start - record.upload
        self.deadline = now + context.timeouts.response
        if context.draining:
            exchange.drain()
        if request.forwardable and request.host == info.end_host:  # the usual case
            # Not `request_id_line`: a call costs more than the line.
            parts = request.forwardable, b"X-Request-Id: ", record.request_id, b"\r\n", info.end
            exchange.start(b"".join(parts), now)
            return
        authority = context.balancer.origins[0].authority
        exchange.start(forwarded_request_head(request, info, authority, record.request_id), now)
        if len(self._buffer) and exchange.takes_body:
            self._buffer.append(exchange.feed(self._buffer.take()))
            self._limit_buffer()

    def _read_on(self) -> None:
        """Handle the requests that were sent ahead, in the next turn: this may be the turn of another connection."""
        if self.state is ClientState.IDLE and len(self._buffer):
            self._move(ClientState.WAITING)
            asyncio.get_running_loop().call_soon(self._continue)

    # The end of a request, and of the connection.

    def _answer_new(self, response: Response, request: RequestHead) -> None:
        """Answer a request whose body has not been read: a short one is discarded, after others the connection ends."""
        unread = 0
        if self._collected is not None:
            self._collected.abandon()
            self._collected = None
        elif not request.forwardable and request.has_body:
            is_short = not request.expects_continue and 0 < request.length <= MAX_DISCARDED_BODY
            unread = request.length if is_short and response.source is None else -1
        self._answer(response, unread=unread)

    def _answer(self, response: Response, *, unread: int = 0) -> None:
        """Answer the request under way, of whose body `unread` bytes follow; -1 if the connection ends instead."""
        record = self.record
        assert record is not None
        request = record.request
        keep, minor, is_head = False, 1, False
        if request is not None:
            minor, is_head = request.minor, request.method == b"HEAD"
            keep = unread >= 0 and request.keep_alive and not self._context.draining
        record.status = response.status
        message, record.bytes = serialize(response, record.request_id, keep=keep, minor=minor, without_body=is_head)
        if not self._transport.is_closing():
            self._transport.write(message)
        if response.source is None:
            self._finish(keep=keep, unread=unread)
            return
        exchange = FileResponse(self, self._transport, record, response.source, keep=keep, unread=unread != 0)
        self.deadline = self._context.clock() + self._context.timeouts.idle
        self.exchange = exchange
        exchange.start()

    def _finish(self, *, keep: bool, unread: int) -> None:
        """End the request under way, whose whole response was sent; every response leaves here."""
        context, record = self._context, self.record
        self.record = None
        now = context.clock()
        if context.observe is not None and record is not None:
            record.end = now
            context.observe(record)
        self.deadline = now + context.idle_timeout
        if keep and not unread:
            context.registry.idle[self] = None  # as `_move`
            self.state = _IDLE
        elif keep:
            self._move(ClientState.DISCARDING)
            self._unread = unread
            self._buffer.append(self._discard(self._buffer.take()))
        elif unread or len(self._buffer):
            self._linger()
        else:
            self._close()

    def _report(self, reason: str = "") -> None:
        """Complete the record of the request under way, if there is one; `reason` is why its response is not whole."""
        record, self.record = self.record, None
        observe = self._context.observe
        if observe is not None and record is not None:
            record.reason = reason or record.reason
            record.end = self._context.clock()
            observe(record)

    def _discard(self, data: bytes) -> bytes:
        """Discard the body of an answered request; return the bytes after it."""
        unread = self._unread
        self._unread = max(0, unread - len(data))
        if not self._unread:
            self._move(ClientState.IDLE)
        return data[unread:]

    def _refuse(self, error: ProtocolError) -> None:
        """Answer a malformed request and close: where the next one begins is unknown."""
        self._context.counters.malformed += 1
        self.record = self._new_record()
        self.fail(error, "malformed", unread=True)

    def _new_record(self) -> RequestRecord:
        """Return the record of a request whose head is unknown."""
        return RequestRecord(
            self._view.info.address, time.time(), self._context.clock(), None, hexlify(getrandbits(64).to_bytes(8))
        )

    def _linger(self) -> None:
        """Close, but read on for a while: with unread bytes the system would reset the connection (9112 9.6)."""
        self._move(ClientState.LINGERING)
        self._buffer.take()
        self.deadline = self._context.clock() + LINGER_TIMEOUT
        if self._eof:
            self._transport.close()
        elif not self._transport.is_closing():
            self._flow.release()
            if self._transport.can_write_eof():
                try:
                    self._transport.write_eof()
                except OSError:  # the client has reset the connection, and the event loop has not noticed it yet
                    self._transport.abort()

    def _reject_connection(self, reason: str) -> None:
        """Close a connection over a limit; answer it first if that needs no handshake."""
        self._move(ClientState.CLOSED)
        if self._listener.tls is not None:
            self._transport.abort()
            return
        record = self.record = self._new_record()
        which = "" if reason == "limit" else " of this client address"
        response = gateway_problem(503, f"connection limit{which} reached")
        message, record.bytes = serialize(response, record.request_id, keep=False)
        record.status = response.status
        self.write(message)
        self._transport.close()
        self._report(reason)

    def _close(self) -> None:
        self._move(ClientState.CLOSED)
        self.deadline = self._context.clock() + self._context.timeouts.response
        self._transport.close()
