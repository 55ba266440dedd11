"""One request on its way to the origin, and its response on the way back.

An exchange joins the client's connection with one to the origin for one request: it sends the head, passes the body
through a strict reader, retries once where that is safe, and relays the response as it arrives. Either side is paused
while the other is slow.
"""

import asyncio
import enum
import errno

from headgate.errors import ProtocolError
from headgate.http.h1 import BodyReader, ChunkedBody, LengthBody, RequestHead, ResponseHead, UnboundedBody
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.forwarding import forwarded_response_lines
from headgate.origin.gateway.responses import Downstream, date_line
from headgate.origin.gateway.upstream import UpstreamConnection
from headgate.origin.permits import Permit

MAX_HELD_BODY = 65536
"""Bytes of a request's body that are kept until there is a connection to the origin."""
MAX_TRAILERS_SIZE = 8192
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"PUT"})
"""Idempotent methods (9110 9.2.2): without a body they may be sent a second time."""
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class ExchangeState(enum.Enum):
    """The state of an exchange; ENDED from every other one."""

    CONNECTING = enum.auto()
    """The connection to the origin is still to be made."""
    WAITING = enum.auto()
    """The request's head was sent. CONNECTING again if the connection closes unused."""
    RESPONDING = enum.auto()
    """The final response has begun."""
    ENDED = enum.auto()
    """The response is complete, has failed, or is not wanted any more."""


class ProxiedExchange:
    """Forwards `request`, and relays the response to `client`.

    `permit` is released when the exchange ends, however it ends; None without a concurrency limit.
    """

    __slots__ = (
        "_body", "_client", "_connecting", "_context", "_continued", "_head", "_held", "_keep", "_permit",
        "_repeatable", "_request", "_upstream", "relays_whole", "state",
    )  # fmt: skip

    def __init__(
        self, context: GatewayContext, client: Downstream, request: RequestHead, permit: Permit | None
    ) -> None:
        self.state = ExchangeState.CONNECTING
        self._context = context
        self._client = client
        self._request = request
        self._permit = permit
        self._head = b""
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._body: BodyReader | None = self._body_reader() if request.has_body else None
        self._held: list[bytes] = []
        self._keep = request.keep_alive
        self._continued = not request.expects_continue
        self._repeatable = self._body is None and request.method in _REPEATABLE
        self.relays_whole = (
            self._body is None
            and request.minor == 1
            and request.keep_alive
            and request.method != b"HEAD"
            and not context.draining
        )
        """Whether a usual response that arrives in one piece may be passed on as it is."""

    def _body_reader(self) -> BodyReader:
        if self._request.chunked:
            max_size = self._context.limits.body
            return ChunkedBody(framed=True, max_trailers=MAX_TRAILERS_SIZE, max_size=max_size)
        return LengthBody(self._request.length)

    # What the client's connection calls.

    def start(self, head: bytes) -> None:
        """Send `head`, at once or as soon as there is a connection."""
        self._head = head
        upstream = self._context.pool.take(repeatable=self._repeatable)
        if upstream is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._begin(upstream)

    @property
    def begun(self) -> bool:
        """Whether the final response has begun."""
        return self.state is ExchangeState.RESPONDING

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
            # The origin must not receive the end of this message.
            begun = self.begun
            self._drop()
            self._client.refuse_body(error, begun=begun)
            return b""
        if body.done:
            if isinstance(body, ChunkedBody):
                pieces.append(b"0\r\n\r\n")
            if self._permit is not None:
                self._permit.body_received()
        self._continued = True
        self._client.renew_deadline()
        if self._upstream is not None:
            self._upstream.send(pieces)
        else:
            self._held += pieces
            if sum(map(len, self._held)) > MAX_HELD_BODY:
                self.pause_request()
        return body.rest

    def abandon(self) -> None:
        """End the exchange: the client has left. An unanswered request may keep its permit, as the limit is set."""
        permit, upstream = self._permit, self._upstream
        is_answered = self.state is not ExchangeState.WAITING
        if permit is None or upstream is None or is_answered or self.takes_body or not permit.outlives_client:
            self._drop()
            return
        self.state = ExchangeState.ENDED
        self._upstream = self._permit = None
        upstream.resume()
        AbandonedExchange(upstream.release_transport(), permit, self._context.timeouts.response)

    def _drop(self, *, timed_out: bool = False) -> None:
        """Drop the connection to the origin: the response is not wanted, cannot be had, or comes too late."""
        self.state = ExchangeState.ENDED
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.abort()
            self._upstream = None
        self._release_permit(measured=timed_out)

    def pause_response(self) -> None:
        """Stop reading the response: the client reads slowly."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume_response(self) -> None:
        """Read the response again."""
        if self._upstream is not None:
            self._upstream.resume()

    def drain(self) -> None:
        """Have the connection close after the response."""
        self.relays_whole = False

    def time_out(self) -> None:
        """End an exchange whose origin does not respond, or does not continue, in time."""
        if self.begun:
            self.truncated()
        else:
            self.fail("timeout", "the origin does not answer in time")

    def _release_permit(self, *, measured: bool = True) -> None:
        if self._permit is not None:
            self._permit.release(measured=measured)

    # What the connection to the origin calls: see `ResponseHandler`.

    def pause_request(self) -> None:
        """Stop reading the request's body."""
        self._client.pause_request()

    def resume_request(self) -> None:
        """Read the request's body again."""
        self._client.resume_request()

    def relay_whole(self, message: bytes) -> None:
        """Pass on a whole response."""
        self.state = ExchangeState.ENDED
        self._release_permit()
        self._client.respond_with(message)

    def interim_head(self, head: ResponseHead) -> list[bytes]:
        """Return what to send of a 1xx response: nothing to HTTP/1.0 clients (9110 15.2)."""
        self._continued = True
        return [forwarded_response_lines(head), b"\r\n"] if self._request.minor else []

    def final_head(self, head: ResponseHead) -> tuple[bytes, BodyReader]:
        """Begin the final response; returns the head to send, and the reader of its body."""
        request = self._request
        body, framing = self._framing(head)
        ends_with_connection = isinstance(body, ChunkedBody | UnboundedBody) and not body.framed
        self._keep = request.keep_alive and not ends_with_connection and not self._context.draining
        connection = b"Connection: close\r\n"
        if self._keep:
            connection = b"" if request.minor else b"Connection: keep-alive\r\n"
        self.state = ExchangeState.RESPONDING
        if self._permit is not None:
            self._permit.responded()
        date = b"" if head.has_date else date_line()  # 9110 6.6.1
        return b"%b%b%b%b\r\n" % (forwarded_response_lines(head), date, framing, connection), body

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

    def relay(self, pieces: list[bytes]) -> None:
        """Send pieces of the response."""
        self._client.renew_deadline()
        if pieces:
            self._client.write(b"".join(pieces))

    def end(self, *, reusable: bool) -> None:
        """Complete the exchange; `reusable` is whether the origin keeps the connection."""
        self.state = ExchangeState.ENDED
        upstream, self._upstream = self._upstream, None
        if upstream is not None and upstream.is_open:
            upstream.resume()
            if self.takes_body or not upstream.is_drained:
                upstream.abort()  # an early response: the origin does not receive the rest of the request
            elif reusable:
                self._context.pool.give_back(upstream)
            else:
                upstream.close()
        self._release_permit()
        self._client.complete(keep=self._keep, unread=self.takes_body)

    def lost(self, *, unanswered: bool) -> None:
        """Retry on a new connection where that is safe: the origin closed before a final response began."""
        upstream, self._upstream = self._upstream, None
        # 9112 9.3.1: a connection that was idle may have been closed while the request was on its way. The next one is
        # new, so a request is repeated once only.
        if unanswered and upstream is not None and upstream.reused and self._repeatable:
            self.state = ExchangeState.CONNECTING
            self._context.counters.retried += 1
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self.fail("unreachable", "the origin closed the connection without an answer")

    def fail(self, kind: str, reason: str) -> None:
        """Answer for an origin that fails; `kind` is one of `FAILURES`."""
        self._drop(timed_out=kind == "timeout")
        self._context.counters.failed[kind] += 1
        error = ProtocolError(504 if kind == "timeout" else 502, reason)
        self._client.fail(self._request, error, unread=self.takes_body)

    def truncated(self) -> None:
        """Close the client's connection so that the client notices the truncated response."""
        self._drop()
        self._context.counters.failed["truncated"] += 1
        self._client.abort(reset=not self._request.minor)

    def switch(self, head: ResponseHead, rest: bytes) -> None:
        """Turn both connections into a tunnel; raises `ProtocolError` if the client did not ask for that."""
        upstream = self._upstream
        if upstream is None or not (head.websocket and self._request.websocket):
            raise ProtocolError(502, "the origin switches to a protocol it was not asked for")
        self.state = ExchangeState.ENDED
        self._upstream = None
        self._release_permit(measured=False)
        lines = forwarded_response_lines(head)
        origin = upstream.release_transport()
        self._client.become_tunnel(origin, b"%bConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n%b" % (lines, rest))

    async def _connect(self) -> None:
        context = self._context
        try:
            upstream = await context.pool.connect(context.timeouts.connect)
        except TimeoutError:
            self._connecting = None
            self.fail("timeout", "the origin accepted no connection in time")
        except OSError as error:
            self._connecting = None
            if error.errno in _NO_DESCRIPTORS:
                self.fail("descriptors", "no file descriptor is left for a connection to the origin")
            else:
                self.fail("unreachable", "the origin accepts no connection")
        else:
            self._connecting = None
            held, self._held = self._held, []
            if held:
                self.resume_request()  # first, because sending may pause the client again
            self._begin(upstream)
            if held:
                upstream.send(held)
            self._client.renew_deadline()

    def _begin(self, upstream: UpstreamConnection) -> None:
        self.state = ExchangeState.WAITING
        self._upstream = upstream
        upstream.begin(self, self._head)


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
