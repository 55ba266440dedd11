"""One request on its way to the origin, and its response on the way back.

An exchange joins the client's connection with one to an origin for one request: it sends the head, passes the body
through a strict reader, asks another origin once where that is safe, and relays the response as it arrives. Either
side is paused while the other is slow. A connection to the origin parses responses strictly and serves one exchange at
a time, which makes all further decisions.
"""

import asyncio
import enum
import errno
import re
import ssl
import time
from collections.abc import Callable
from typing import Final, cast

from headgate.config.origin_section import OriginSection, OriginUrl
from headgate.errors import ProtocolError, reason_of
from headgate.http.h1 import (
    MAX_TRAILERS_SIZE,
    BodyReader,
    ChunkedBody,
    LengthBody,
    RequestHead,
    ResponseHead,
    UnboundedBody,
    check_response_start,
    parse_response_head,
    parse_usual_response_head,
)
from headgate.origin.gateway.addresses import OriginAddresses
from headgate.origin.gateway.balancer import Balancer, OriginHealth
from headgate.origin.gateway.buffer import SpooledBuffer
from headgate.origin.gateway.forwarding import forwarded_response_lines, forwarded_trailers, request_id_line
from headgate.origin.gateway.record import FAILURES, RequestRecord
from headgate.origin.gateway.responses import Downstream, date_line
from headgate.origin.gateway.settings import GatewaySettings
from headgate.origin.permits import Permit

MAX_HELD_BODY = 65536
"""Bytes of a request's body that are kept until there is a connection to the origin."""
MAX_IDLE_CONNECTIONS = 512
IDLE_TIMEOUT = 4.0
"""Seconds; common origins close idle connections after 5 and more."""
MAX_UNREPEATABLE_IDLE = 1.0
"""Maximum idle seconds of a connection for a request that must not be sent twice."""
_LOG_INTERVAL: Final = 10.0
"""Seconds between two lines about one origin."""
_BODILESS = frozenset({204, 304})
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"PUT"})
"""Idempotent methods (9110 9.2.2): without a body they may be sent a second time."""
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_HOST_LINE: Final = re.compile(rb"\r\n[Hh][Oo][Ss][Tt]:[\t ]*([^\r]*)")
_PARENT_SEGMENT: Final = re.compile(rb"(?:[/\\]|%2f|%5c)(?:\.|%2e){2}(?:[/\\?;]|%2f|%5c|%3b|\Z)", re.IGNORECASE)
"""A segment `..` as any origin may understand it."""
_STREAMS = re.compile(rb"(?im)^(?:content-type:[\t ]*text/event-stream\b|x-accel-buffering:[\t ]*no[\t ]*\r)")
"""Matches the field lines of a response that is not buffered."""


class ProxiedExchange:
    """Forwards the request of `record`, and relays the response to `client`.

    `permit` is released when the exchange ends, however it ends.
    """

    __slots__ = (
        "_balancer", "_body", "_client", "_connecting", "_continued", "_counted", "_head", "_held", "_keep", "_moved",
        "_pool", "_received", "_repeatable", "_request", "_response", "_unread", "_unsent", "_upload",
        "_upstream", "begun", "permit", "record", "relays_whole",
    )  # fmt: skip

    def __init__(
        self,
        client: Downstream,
        record: RequestRecord,
        request: RequestHead,
        balancer: "Balancer[UpstreamPool]",
        permit: Permit | None,
    ) -> None:
        self.begun = False
        """Whether the final response has begun."""
        self.record = record
        self._client = client
        self._request = request
        self._balancer = balancer
        self._pool = balancer.only or balancer.origins[0]  # the last origin that was asked
        self._counted: OriginHealth | None = None  # of one of several origins, while this request is in flight there
        self._moved = False  # whether a second origin was asked
        self.permit = permit
        """Released when the exchange ends; None without a concurrency limit."""
        self._head = b""
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | asyncio.Handle | None = None
        # A usual request, which may be forwarded unchanged, has no body.
        self._body = self._body_reader() if not request.forwardable and request.has_body else None
        self._held: list[bytes] = []
        self._upload: SpooledBuffer | None = None  # the body, if all of it is read before the origin is asked
        self._unsent: SpooledBuffer | None = None  # the part of the response that a slow client has not taken
        self._keep = request.keep_alive
        self._continued = not request.expects_continue
        self._repeatable = self._body is None and request.method in _REPEATABLE
        self.relays_whole = self._body is None and self._keep and request.minor == 1 and request.method != b"HEAD"
        """Whether a usual response that arrives in one piece may be passed on as it is."""

    def _body_reader(self) -> BodyReader:
        if self._request.chunked:
            return self._chunked_body(framed=True)
        return LengthBody(self._request.length)

    def _chunked_body(self, *, framed: bool) -> ChunkedBody:
        max_size = self._pool.settings.limits.body
        return ChunkedBody(framed=framed, max_trailers=MAX_TRAILERS_SIZE, max_size=max_size)

    # What the client's connection calls.

    def collect(self, buffer: SpooledBuffer, received: Callable[[], None]) -> None:
        """Read the body of the request into `buffer`; call `received` when it is whole, and then `start`."""
        buffer.send_to(self._send_upload, self._close_upload, self._lose)
        self._upload, self._received, self._continued = buffer, received, True
        if self._request.chunked:
            self._body = self._chunked_body(framed=False)

    def _collect(self, body: BodyReader, buffer: SpooledBuffer, pieces: list[bytes]) -> bytes:
        if pieces and not buffer.append(b"".join(pieces)):
            self._refuse(ProtocolError(503, "there is no room for the body of the request"), "buffers")
            return b""
        self._client.renew_deadline()
        if body.done:
            # The origin gets the body with its length, and without an expectation.
            request = self._request
            request.length, request.chunked, request.expects_continue = len(buffer), False, False
            self._body = None
            self._received()
        return body.rest

    def _send_upload(self, data: bytes) -> None:
        upstream = self._upstream
        if upstream is not None and not upstream.transport.is_closing():
            upstream.send([data])
        elif self._upload is not None:
            self._upload.paused = True  # `lost` follows; asyncio logs what is written before that

    def _close_upload(self) -> None:
        if self._upload is not None:
            self._upload.close()
            self._upload = None

    def _lose(self, error: OSError) -> None:
        """End the exchange: a buffer cannot be read."""
        self._refuse(ProtocolError(500, reason_of(error)), "buffers")

    def start(self, head: bytes, now: float) -> None:
        """Send `head`, at once or as soon as there is a connection."""
        self._head = head
        pool = self._balancer.only
        if pool is not None and not pool.prefix:
            self._ask(pool, now)
            return
        pool = self._balancer.choose(now)
        if pool is not None and not (pool.prefix and self._has_parent_segment()):
            self._ask(pool, now)
            return
        error, reason = ProtocolError(503, "the origins are busy"), "full"
        if pool is not None:
            error, reason = ProtocolError(400, "the path has a segment '..', which is not forwarded"), "malformed"
        # Not refused at once: the client's connection has not finished with this request yet.
        self._connecting = asyncio.get_running_loop().call_soon(self._refuse, error, reason)

    def _has_parent_segment(self) -> bool:
        return _PARENT_SEGMENT.search(self._request.target) is not None

    def _ask(self, pool: "UpstreamPool", now: float) -> None:
        self._pool = pool
        if self._balancer.only is None:
            self._counted = pool.health
            pool.health.in_flight += 1
        self.record.upstream = pool.name
        upstream = pool.take(repeatable=self._repeatable)
        if upstream is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._begin(upstream, now)

    @property
    def takes_body(self) -> bool:
        """Whether the client's next bytes belong to this request."""
        return self._body is not None and not self._body.done

    @property
    def waits_for_client(self) -> bool:
        """Whether the rest of the body is expected from the client: it need not wait for 100."""
        return self._continued and self.takes_body

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the request's body; return those that come after its end."""
        body = self._body
        if body is None:
            return data
        try:
            pieces = body.feed(data)
        except ProtocolError as error:
            self._refuse(error)
            return b""
        if self._upload is not None:
            return self._collect(body, self._upload, pieces)
        if body.done:
            if isinstance(body, ChunkedBody):
                pieces.append(b"0\r\n\r\n")
            if self.permit is not None:
                self.permit.body_received()
        self._continued = True
        self._client.renew_deadline()
        if self._upstream is not None:
            self._upstream.send(pieces)
        else:
            self._held += pieces
            if sum(map(len, self._held)) > MAX_HELD_BODY:
                self._client.set_upstream_slow(slow=True)
        return body.rest

    def abandon(self) -> None:
        """End the exchange: the client has left. An unanswered request may keep its permit, as the limit is set."""
        permit, upstream = self.permit, self._upstream
        is_sent = not self.takes_body and self._upload is None
        if permit is None or upstream is None or self.begun or not is_sent or not permit.outlives_client:
            self._drop()
            return
        self._upstream = self.permit = None
        self._leave()
        upstream.resume()
        AbandonedExchange(upstream.release_transport(), permit, self._pool.settings.timeouts.response)

    def pause_response(self) -> None:
        """Buffer the response, or stop reading it: the client reads slowly."""
        if self._unsent is None and self.begun and not _STREAMS.search(self._response.lines):
            self._unsent = self._client.response_buffer()
            if self._unsent is not None:
                self._unsent.send_to(self._send_unsent, self._end_unsent, self._lose)
        if self._unsent is not None:
            self._unsent.paused = True
        elif self._upstream is not None:
            self._upstream.pause()

    def resume_response(self) -> None:
        """Send what is buffered, or read the response again."""
        if self._unsent is not None:
            self._unsent.resume()
        elif self._upstream is not None:
            self._upstream.resume()

    def _send_unsent(self, data: bytes) -> None:
        self._client.write(data)
        if self._upstream is not None and self._unsent is not None and self._unsent.has_room:
            self._upstream.resume()

    def _end_unsent(self) -> None:
        """Go on without the buffer: the client has taken all of it."""
        self._unsent = None
        if self._upstream is not None:
            self._upstream.resume()
        else:
            self._client.complete(keep=self._keep, unread=self._unread)

    def drain(self) -> None:
        """Have the connection close after the response, unless its head, which would say so, was sent already."""
        if not self.begun:
            self._keep = self.relays_whole = False

    def time_out(self, *, body_awaited: bool) -> None:
        """End an exchange that is not continued in time: by its client if its body is awaited, or by its origin."""
        if body_awaited:
            self._refuse(ProtocolError(408, "request body timeout"))
        elif self.begun:
            self.truncated()
        else:
            self.fail("timeout", "the origin does not answer in time")

    def _refuse(self, error: ProtocolError, reason: str = "malformed") -> None:
        """Answer a request that is malformed, lost, or finds no room; only close if the response has begun."""
        self._drop()  # the origin must not receive the end of this message
        if self.begun:
            self._client.abort(reason)
        else:
            self._pool.counters.malformed += reason == "malformed"
            self._pool.counters.full += reason == "full"
            self._client.fail(error, reason, unread=reason != "full" or self.takes_body)

    def _drop(self, *, timed_out: bool = False) -> None:
        """Drop the connection to the origin: the response is not wanted, cannot be had, or comes too late."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        self._leave()
        self._close_upload()
        self._close_unsent()
        self._release_permit(measured=timed_out)

    def _leave(self) -> None:
        """Count this request no longer as in flight at the origin."""
        if self._counted is not None:
            self._counted.in_flight -= 1
            self._counted = None

    def _close_unsent(self) -> None:
        if self._unsent is not None:
            self.record.bytes = max(0, self.record.bytes - len(self._unsent))
            self._unsent.close()
            self._unsent = None

    def _release_permit(self, *, measured: bool = True) -> None:
        if self.permit is not None:
            self.permit.release(measured=measured)

    async def _connect(self) -> None:
        try:
            upstream = await self._pool.connect()
        except OSError as error:
            self._connecting = None
            kind, explanation = _explain(error)
            self._move(kind, explanation, reason_of(error))
        else:
            self._connecting = None
            self._begin(upstream, self._pool.clock())
            self._client.renew_deadline()

    def _begin(self, upstream: "UpstreamConnection", now: float) -> None:
        self._upstream = upstream
        self.record.upstream_start = now
        if self._held:
            self._client.set_upstream_slow(slow=False)  # first, because sending may pause the client again
        rewrite, upload = self._pool.rewrite, self._upload
        head = self._head if rewrite is None else rewrite(self._head)
        upstream.begin(self, head)
        if upload is not None:
            upload.run()
        if self._held:
            upstream.send(self._held)
            self._held = []

    def _move(self, kind: str, explanation: str, detail: str = "") -> None:
        """Ask another origin once, after one that may not have received the request; or answer."""
        pool, now = self._pool, self._pool.clock()
        other = None if self._moved else self._balancer.choose(now, pool)
        if other is None or (other.prefix and self._has_parent_segment()):
            self.fail(kind, explanation, detail)
            return
        self._moved = True
        self._leave()
        pool.fail(kind, detail or explanation)
        pool.counters.moved += 1
        self._ask(other, now)
        self._client.renew_deadline()

    # What the connection to the origin calls.

    def set_upstream_slow(self, *, slow: bool) -> None:
        """Stop reading the request's body, or read it again: the origin reads slowly, or does not any more."""
        if self._upload is None:
            self._client.set_upstream_slow(slow=slow)
        elif slow:
            self._upload.paused = True
        else:
            self._client.renew_deadline()
            self._upload.resume()

    def relay_whole(self, head: ResponseHead, body: bytes) -> None:
        """Pass on a whole usual response; the connection has been given back to the pool."""
        self._upstream = None
        self._note(head.status)
        record = self.record
        record.bytes = head.length
        if self._counted is not None:
            self._leave()
        if self.permit is not None:
            self.permit.release()
        # Not `request_id_line`: a call costs more than the line.
        self._client.complete(
            b"".join((head.forwardable, record.quota, b"X-Request-Id: ", record.request_id, b"\r\n\r\n", body))
        )

    def _note(self, status: int) -> None:
        record, pool = self.record, self._pool
        record.status = record.upstream_status = status
        record.upstream_first_byte = pool.clock()
        if pool.health.failures:
            pool.health.succeed()

    def interim_head(self, head: ResponseHead) -> list[bytes]:
        """Return what to send of a 1xx response: nothing to HTTP/1.0 clients (9110 15.2)."""
        self._continued = True
        return [forwarded_response_lines(head), b"\r\n"] if self._request.minor else []

    def final_head(self, head: ResponseHead) -> tuple[bytes, BodyReader]:
        """Begin the final response; returns the head to send, and the reader of its body."""
        request = self._request
        body, framing = self._framing(head)
        ends_with_connection = isinstance(body, ChunkedBody | UnboundedBody) and not body.framed
        self._keep = self._keep and not ends_with_connection
        connection = b"Connection: close\r\n"
        if self._keep:
            connection = b"" if request.minor else b"Connection: keep-alive\r\n"
        self.begun = True
        self._response = head
        self._note(head.status)
        if self.permit is not None:
            self.permit.responded()
        date = b"" if head.has_date else date_line(int(time.time()))  # 9110 6.6.1
        lines = forwarded_response_lines(head) + self.record.quota + request_id_line(self.record.request_id)
        return b"%b%b%b%b\r\n" % (lines, date, framing, connection), body

    def _framing(self, head: ResponseHead) -> tuple[BodyReader, bytes]:
        """Return the reader of the body, and the framing field for the client (9112 6.3)."""
        length, chunked = b"Content-Length: %d\r\n" % head.length, b"Transfer-Encoding: chunked\r\n"
        framed = self._request.minor == 1
        if not head.has_body(self._request.method):
            # In responses to HEAD and in 304 these fields describe the body of a 200; 204 has neither (9110 8.6).
            described = length if head.length >= 0 else chunked if head.chunked and framed else b""
            return LengthBody(0), b"" if head.status == 204 else described
        if head.length >= 0:
            return LengthBody(head.length), length
        if head.chunked:
            return ChunkedBody(framed=framed, max_trailers=MAX_TRAILERS_SIZE), chunked if framed else b""
        return UnboundedBody(framed=framed), chunked if framed else b""

    def relay(self, pieces: list[bytes], size: int = 0) -> None:
        """Send pieces of the response, whose content now has `size` bytes."""
        self.record.bytes = size
        unsent = self._unsent
        if unsent is None:
            self._client.renew_deadline()
            if pieces:
                self._client.write(b"".join(pieces))
        elif not unsent.append(b"".join(pieces)) and self._upstream is not None:
            self._upstream.pause()

    def finish(self, *, reusable: bool) -> None:
        """End the exchange after a whole response; `reusable` is whether the origin keeps the connection."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None and not upstream.transport.is_closing():
            upstream.resume()
            if self.takes_body or self._upload is not None or upstream.transport.get_write_buffer_size():
                upstream.abort()  # an early response: the origin does not receive the rest of the request
            elif reusable:
                self._pool.give_back(upstream)
            else:
                upstream.close()
        self._leave()
        self._release_permit()
        self._close_upload()
        self._unread, self._body = self.takes_body, None
        if self._unsent is None or not len(self._unsent):
            self._close_unsent()
            self._client.complete(keep=self._keep, unread=self._unread)

    def lost(self, error: Exception | None, *, unanswered: bool) -> None:
        """Retry where that is safe: the origin closed the connection before a final response began.

        `unanswered` means that it had not sent a byte.
        """
        upstream, self._upstream = self._upstream, None
        kind, explanation, detail = "unreachable", "the origin closed the connection without an answer", ""
        if isinstance(error, ssl.SSLError):  # as TLS 1.3 does without a client certificate
            kind, detail = "tls", reason_of(error)
        # 9112 9.3.1: a connection that was idle may have been closed while the request was on its way. The next one is
        # new, so a request is repeated once only at one origin.
        if unanswered and upstream is not None and upstream.reused and self._repeatable:
            self._pool.counters.retried += 1
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        elif self._repeatable:
            self._move(kind, explanation, detail)
        else:
            self.fail(kind, explanation, detail)

    def fail(self, kind: str, explanation: str, detail: str = "") -> None:
        """Answer for an origin that fails; `kind` is one of `FAILURES`, and `detail` is for the log."""
        self._drop(timed_out=kind == "timeout")
        self._pool.fail(kind, detail or explanation)
        error = ProtocolError(504 if kind == "timeout" else 502, explanation)
        self._client.fail(error, kind, unread=self.takes_body)

    def truncated(self) -> None:
        """Close the client's connection so that the client notices the truncated response."""
        self._drop()
        self._pool.fail("truncated", "the response is not complete")
        self._client.abort("truncated", reset=not self._request.minor)

    def switch(self, head: ResponseHead, rest: bytes) -> None:
        """Turn both connections into a tunnel; raises `ProtocolError` if the client did not ask for that."""
        upstream = self._upstream
        if upstream is None or not (head.websocket and self._request.websocket):
            raise ProtocolError(502, "the origin switches to a protocol it was not asked for")
        self._upstream = None
        self._note(head.status)
        self._leave()
        self._release_permit(measured=False)
        lines = forwarded_response_lines(head) + request_id_line(self.record.request_id)
        origin = upstream.release_transport()
        self._client.become_tunnel(origin, b"%bConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n%b" % (lines, rest))


def _explain(error: OSError) -> tuple[str, str]:
    """Return which of `FAILURES` keeps a connection from being opened, and the explanation for the client."""
    if isinstance(error, TimeoutError):
        return "timeout", "the origin accepted no connection in time"
    if isinstance(error, ssl.SSLError):
        return "tls", "the TLS handshake with the origin failed"
    if error.errno in _NO_DESCRIPTORS:
        return "descriptors", "no file descriptor is left for a connection to the origin"
    return "unreachable", "the origin accepts no connection"


class AbandonedExchange(asyncio.Protocol):
    """Holds the permit of a request whose client has left until the origin answers, or `seconds` have passed."""

    def __init__(self, transport: asyncio.Transport, permit: Permit, seconds: float) -> None:
        self._transport = transport
        self._permit = permit
        self._timer = asyncio.get_running_loop().call_later(seconds, transport.abort)
        transport.set_protocol(self)

    def data_received(self, _data: bytes) -> None:
        """Close the connection: the origin answers."""
        self._transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        """Release the permit."""
        self._timer.cancel()
        self._permit.release(measured=False)


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


class UpstreamPool:
    """The connections to one origin; the last one used is used first, so that surplus ones expire."""

    def __init__(self, origin: OriginSection, settings: GatewaySettings, tls: ssl.SSLContext | None = None) -> None:
        url = self.url = OriginUrl.parse(origin.url)
        self.name = url.name
        """The URL without `http://`."""
        self.authority = url.authority.encode()
        """The value of Host for a request without one."""
        self.prefix = url.path.encode()
        """What precedes the path of each request."""
        self.health = OriginHealth()
        self.failure = ""
        """The last failure."""
        self._checking: asyncio.Task[None] | None = None
        self._next_check = 0.0
        self.configure(origin, tls)
        self.settings = settings
        """The settings of the gateway; a response head may have twice as many bytes as that of a request."""
        self.max_idle = MAX_IDLE_CONNECTIONS
        """Maximum idle connections."""
        self.counters = settings.counters
        """The counters of the gateway."""
        self.failures = dict.fromkeys(FAILURES, 0)
        """Attempts that failed at this origin, by reason."""
        self._logged_failed, self._logged_failures = False, dict(self.failures)  # what the log has said last
        self._next_line = 0.0
        self.clock = settings.clock
        """The clock of the gateway."""
        self._addresses = OriginAddresses(url.host)
        self.port = url.port
        self.now = 0.0
        """The time of the gateway's last tick."""
        self.idle: list[UpstreamConnection] = []
        self.open: set[UpstreamConnection] = set()

    @property
    def connection_states(self) -> dict[str, int]:
        """The number of its connections that have a request, active, and of those that are idle."""
        return {"active": len(self.open) - len(self.idle), "idle": len(self.idle)}

    def take(self, *, repeatable: bool) -> "UpstreamConnection | None":
        """Take an idle connection out of the pool; None if there is none that fits."""
        idle = self.idle
        while idle and (repeatable or self.now - idle[-1].idle_since <= MAX_UNREPEATABLE_IDLE):
            connection = idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    def configure(self, origin: OriginSection, tls: ssl.SSLContext | None) -> None:
        """Put other settings of the same origin in force."""
        self.origin, self._tls = origin, tls
        self._server_name = (origin.server_name or self.url.host) if tls is not None else None
        self._host = None if origin.host == "pass" else origin.host.encode()
        self.rewrite = self._rewrite if self.prefix or self._host is not None else None
        """Changes a head for this origin; None if it gets that of the client."""
        for name in ("weight", "backup", "max_in_flight", "max_failures", "failure_window"):
            setattr(self.health, name, getattr(origin, name))

    def _rewrite(self, head: bytes) -> bytes:
        if self.prefix:
            method, _, rest = head.partition(b" ")
            if rest.startswith(b"/"):  # else it is *
                head = b"%b %b%b" % (method, self.prefix, rest)
        if self._host is not None:
            start, end = _HOST_LINE.search(head).span(1)  # type: ignore[union-attr]  # each head has the line
            head = b"%b%b%b" % (head[:start], self._host, head[end:])
        return head

    async def connect(self) -> "UpstreamConnection":
        """Open a connection; raises `OSError`, and `TimeoutError` after `timeouts.connect` seconds."""
        try:
            async with asyncio.timeout(self.settings.timeouts.connect):
                return await (self._open("") if self.url.socket else self._addresses.connect(self._open))
        except OSError:
            self._addresses.expire()
            raise

    async def _open(self, address: str) -> "UpstreamConnection":
        loop, make = asyncio.get_running_loop(), lambda: UpstreamConnection(self)
        if self.url.socket:
            return (await loop.create_unix_connection(make, self.url.socket))[1]
        tls, name = self._tls, self._server_name
        return (await loop.create_connection(make, address, self.port, ssl=tls, server_hostname=name))[1]

    def fail(self, kind: str, detail: str) -> None:
        """Count a failed attempt; a failed TLS handshake will not get better by itself."""
        self.failure = f"{kind}: {detail}"
        self.failures[kind] += 1
        if kind != "descriptors":  # the origin is not to blame
            self.health.fail(self.clock(), self.health.failure_window if kind == "tls" else 0.0)

    @property
    def is_failed(self) -> bool:
        """Whether other origins are asked instead."""
        return self.health.release > 0

    def news(self, now: float) -> str:
        """Return a line for the log: its state has changed, or requests fail; empty if it is not time for one."""
        is_changed = self.is_failed is not self._logged_failed
        if now < self._next_line or not (is_changed or self.failures != self._logged_failures):
            return ""
        line = f"origin {self.name} answers again"
        if not is_changed:
            new = {reason: count - self._logged_failures[reason] for reason, count in self.failures.items()}
            listed = ", ".join(f"{reason} {count}" for reason, count in new.items() if count)
            line = f"warning: origin {self.name}: requests fail ({listed})"
        elif self.is_failed:
            line = f"warning: origin {self.name} has failed ({self.failure})"
        self._logged_failed = self.is_failed
        self._next_line, self._logged_failures = now + _LOG_INTERVAL, dict(self.failures)
        return line

    async def _check(self) -> None:
        """Fetch `health` of the origin; without a good answer in time it has failed until the next check."""
        origin, now = self.origin, self.clock()
        try:
            async with asyncio.timeout(origin.health_timeout):
                status = await self._fetch_status(origin.health)
            reason = "" if 200 <= status < 400 else f"status {status}"
        except asyncio.LimitOverrunError:
            reason = "the response has too long a head"
        except TimeoutError:
            reason = f"no answer within {origin.health_timeout:g} s"
        except (OSError, EOFError, ProtocolError) as error:
            if getattr(error, "errno", None) in _NO_DESCRIPTORS:
                return
            reason = reason_of(error)
        if not reason:
            self.health.succeed()
            return
        self.failure = f"{origin.health}: {reason}"
        self.health.fail(now, 2 * origin.health_interval + origin.health_timeout)

    async def _fetch_status(self, path: str) -> int:
        transport = (await self.connect()).release_transport()
        try:
            reader = asyncio.StreamReader(limit=2 * self.settings.limits.head)
            protocol = asyncio.StreamReaderProtocol(reader)
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            host = self._host or self.authority
            transport.write(
                b"GET %b HTTP/1.1\r\nHost: %b\r\nUser-Agent: headgate\r\nConnection: close\r\n\r\n"
                % (path.encode(), host)
            )
            return parse_response_head(await reader.readuntil(b"\r\n\r\n")).status
        finally:
            transport.abort()

    def give_back(self, connection: "UpstreamConnection") -> None:
        """Take back a connection whose exchange is complete."""
        if len(self.idle) < self.max_idle:
            connection.idle_since = self.now
            self.idle.append(connection)
        else:
            connection.close()

    def tick(self, now: float) -> None:
        """Set the clock, close connections that have been idle for too long, and begin a check that is due."""
        self.now = now
        # Of all open ones, not only of those in the pool: a client may leave while its connection is being opened.
        for connection in [
            one for one in self.open if one.state is UpstreamState.IDLE and now - one.idle_since > IDLE_TIMEOUT
        ]:
            connection.close()
        is_due = self.origin.health and self.max_idle and now >= self._next_check
        if is_due and (self._checking is None or self._checking.done()):
            self._next_check = now + self.origin.health_interval
            self._checking = asyncio.get_running_loop().create_task(self._check())

    def retire(self) -> None:
        """Keep no connection any longer: the origin is not in the configuration any more."""
        self.max_idle = 0
        for connection in list(self.idle):
            connection.close()

    def close(self) -> None:
        """Close every connection at once."""
        if self._checking is not None:
            self._checking.cancel()
        for connection in list(self.open):
            connection.abort()


class UpstreamConnection(asyncio.Protocol):
    """One connection to the origin."""

    __slots__ = (
        "_body", "_exchange", "_keep_alive", "_paused", "_pending", "_pool", "idle_since", "reused", "state",
        "transport",
    )  # fmt: skip

    def __init__(self, pool: UpstreamPool) -> None:
        self.state = UpstreamState.IDLE
        self.idle_since = pool.now
        self.reused = False
        """Whether an earlier exchange used this connection: the origin may have closed it meanwhile."""
        self._pool = pool
        self._exchange = cast("ProxiedExchange", None)  # of the request under way, while waiting and receiving
        self.transport = cast("asyncio.Transport", None)
        self._pending = b""  # of an incomplete head
        self._body = cast("BodyReader", None)  # of the response that is being received
        self._keep_alive = False  # whether the origin keeps the connection after that response
        self._paused = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: see `asyncio.Protocol`."""
        self.transport = cast("asyncio.Transport", transport)
        self._pool.open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End: see `asyncio.Protocol`."""
        state, exchange = self.state, self._exchange
        self._end()
        tls = self.transport.get_extra_info("ssl_object")
        if tls is not None:
            tls.context.session = tls.session
        if state is UpstreamState.WAITING:
            exchange.lost(error, unanswered=not self._pending)
        elif state is UpstreamState.RECEIVING:
            if isinstance(self._body, UnboundedBody) and error is None:
                exchange.relay([b"0\r\n\r\n"] if self._body.framed else [], self._body.size)
                exchange.finish(reusable=False)
            else:
                exchange.truncated()

    def eof_received(self) -> bool:
        """The origin sends no more: let the event loop close the connection."""
        self._leave_pool()
        return False

    def pause_writing(self) -> None:
        """The origin reads slowly."""
        if self.state is UpstreamState.WAITING or self.state is UpstreamState.RECEIVING:
            self._exchange.set_upstream_slow(slow=True)

    def resume_writing(self) -> None:
        """The origin reads again."""
        if self.state is UpstreamState.WAITING or self.state is UpstreamState.RECEIVING:
            self._exchange.set_upstream_slow(slow=False)

    def data_received(self, data: bytes) -> None:
        """Parse a response; a usual one that arrives in one piece is passed on with the id of its request."""
        state, exchange = self.state, self._exchange
        if state is UpstreamState.WAITING:
            if exchange.relays_whole and not self._pending:
                head = parse_usual_response_head(data)
                if head is not None and len(data) - head.size == head.length and head.status not in _BODILESS:
                    self._end_response()
                    self._pool.give_back(self)
                    exchange.relay_whole(head, data[head.size :])
                    return
            self._read(data)
        elif state is UpstreamState.RECEIVING:
            self._read(data)
        else:
            self.abort()  # a response without a request must not answer the next request

    # What the exchange calls.

    def begin(self, exchange: ProxiedExchange, head: bytes) -> None:
        """Send the head of a request; `exchange` gets the response."""
        self.state = UpstreamState.WAITING
        self._exchange = exchange
        self.transport.write(head)

    def send(self, pieces: list[bytes]) -> None:
        """Send pieces of the request's body."""
        # Not writelines(): in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 it never holds the writer back
        # (CVE-2024-12254).
        self.transport.write(b"".join(pieces))

    def pause(self) -> None:
        """Stop reading: the client reads slowly."""
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def close(self) -> None:
        """Close after the write buffer is sent."""
        self._end()
        self.transport.close()

    def abort(self) -> None:
        """Close at once, without reporting it to the exchange."""
        self._end()
        self.transport.abort()

    def release_transport(self) -> asyncio.Transport:
        """Leave the pool; returns the transport."""
        self._end()
        return self.transport

    def _end(self) -> None:
        self.state = UpstreamState.CLOSED
        self._leave_pool()
        self._exchange = cast("ProxiedExchange", None)

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
            exchange.relay(pieces, self._body.size if begun else 0)
            exchange.truncated() if begun else exchange.fail("malformed", error.reason)
            return
        if self.state is UpstreamState.RECEIVING and self._body.done:
            self._complete(exchange, pieces)
        elif pieces and self.state is not UpstreamState.CLOSED:
            exchange.relay(pieces, self._body.size if self.state is UpstreamState.RECEIVING else 0)

    def _read_head(self, exchange: ProxiedExchange, data: bytes, start: int, pieces: list[bytes]) -> int:
        """Read one head, interim or final; return where it ends. Nothing is copied: there may be thousands."""
        end = data.find(b"\r\n\r\n", start) + 4
        if (end if end >= 4 else len(data)) - start > 2 * self._pool.settings.limits.head:
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

    def _complete(self, exchange: ProxiedExchange, pieces: list[bytes]) -> None:
        body = self._body
        if isinstance(body, ChunkedBody) and body.framed:
            pieces.append(b"0\r\n%b\r\n" % forwarded_trailers(body.trailers))
        self._end_response()
        exchange.relay(pieces, body.size)
        # After bytes beyond the announced length the connection must not be used again.
        exchange.finish(reusable=self._keep_alive and not body.rest)

    def _end_response(self) -> None:
        self.state = UpstreamState.IDLE
        self._exchange = cast("ProxiedExchange", None)
        self.reused = True
