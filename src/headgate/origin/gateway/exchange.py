"""One request's way to the origin and its response's way back.

An exchange joins one agent's connection with one origin's and lives as long as the request: it sends the head, feeds
the body through its strict reader, tries once more where that is safe, and writes the response as it comes. Either
side may be held while the other is slow.
"""

import asyncio
from typing import TYPE_CHECKING

from headgate.origin.gateway.answer import Answer
from headgate.origin.gateway.chunked import BodyReader, ChunkedBody, LengthBody, UnboundedBody
from headgate.origin.gateway.local import date_line
from headgate.origin.gateway.refusal import Refusal
from headgate.origin.gateway.tunnel import join

if TYPE_CHECKING:
    from headgate.origin.gateway.connection import AgentConnection
    from headgate.origin.gateway.plan import Plan
    from headgate.origin.gateway.upstream import OriginConnection

__all__ = ["Exchange"]

_MOST_HELD = 65536
_LONGEST_TRAILERS = 8192


class Exchange:
    """See the module."""

    __slots__ = (
        "_agent", "_body", "_connecting", "_continued", "_held", "_origin", "_plan", "_request", "begun", "plain",
    )  # fmt: skip

    def __init__(self, agent: "AgentConnection", plan: "Plan") -> None:
        self._agent = agent
        self._plan = plan
        self._request = plan.request
        self._origin: OriginConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._body: BodyReader | None = None
        self._held: list[bytes] = []
        self._continued = not plan.request.expects
        self.plain = plan.plain and not agent.gateway.draining
        """Whether a plain answer can be passed on with the head it would have on any lasting HTTP/1.1 connection."""
        self.begun = False
        """Whether the final response has begun."""

    # What the agent's connection calls.

    def start(self) -> None:
        """Send the request's head, now or once there is a connection."""
        if self._request.has_body:
            self._body = self._request_body()
        origin = self._agent.gateway.pool.take(repeatable=self._plan.repeatable)
        if origin is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._origin = origin
            origin.begin(self, self._plan.head)

    def _request_body(self) -> BodyReader:
        request = self._request
        if request.chunked:
            content_bound = self._agent.gateway.bounds.body_bytes
            return ChunkedBody(framed=True, bound=_LONGEST_TRAILERS, content_bound=content_bound)
        return LengthBody(request.length)

    @property
    def takes_body(self) -> bool:
        """Whether the agent's next bytes belong to this request."""
        return self._body is not None and not self._body.done

    @property
    def waits_for_agent(self) -> bool:
        """Whether it is the agent's turn: its body is not complete, and it has no reason to wait for 100 any more."""
        return self._continued and self.takes_body

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the request's body; return those that come after its end."""
        body = self._body
        if body is None:
            return data
        try:
            pieces = body.feed(data)
        except Refusal as refusal:
            # The origin has not seen the end of this message and never will.
            self.abandon()
            self._agent.refuse_body(refusal, begun=self.begun)
            return b""
        if body.done and isinstance(body, ChunkedBody):
            pieces.append(b"0\r\n\r\n")
        self._continued = True
        self._agent.watch()
        if self._origin is not None:
            self._origin.send(pieces)
        else:
            self._held += pieces
            if sum(map(len, self._held)) > _MOST_HELD:
                self.hold_agent()
        return body.rest

    def abandon(self) -> None:
        """Forget the exchange: the agent is gone, or not to be believed."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._origin is not None:
            self._origin.abort()
            self._origin = None

    def hold_origin(self) -> None:
        """Stop reading the response."""
        if self._origin is not None:
            self._origin.hold()

    def release_origin(self) -> None:
        """Go on reading the response."""
        if self._origin is not None:
            self._origin.release()

    # What the origin's connection calls.

    def hold_agent(self) -> None:
        """Stop reading the request's body."""
        self._agent.hold_reading(origin_is_slow=True)

    def release_agent(self) -> None:
        """Go on reading the request's body."""
        self._agent.release_reading(origin_is_slow=True)

    def answered(self, origin: "OriginConnection", message: bytes) -> None:
        """Pass on a whole plain response; see `plain`."""
        agent = self._agent
        agent.gateway.pool.give_back(origin)
        agent.answered(message)

    def interim(self, answer: Answer) -> list[bytes]:
        """Give what to send of a 1xx response: nothing to HTTP/1.0 agents, who know none (9110 15.2)."""
        self._continued = True
        return [answer.line, answer.block, b"\r\n"] if self._request.minor else []

    def head(self, answer: Answer) -> tuple[bytes, BodyReader]:
        """Begin the final response: what to send as its head, and how to read its body."""
        request = self._request
        body, framing = self._framing(answer)
        ends_with_connection = isinstance(body, ChunkedBody | UnboundedBody) and not body.framed
        keep = request.keep_alive and not ends_with_connection and not self._agent.gateway.draining
        connection = b"Connection: close\r\n"
        if keep:
            connection = b"" if request.minor else b"Connection: keep-alive\r\n"
        self._agent.keep = keep
        self.begun = True
        date = b"" if answer.dated else date_line()  # 9110 6.6.1
        return b"%b%b%b%b%b\r\n" % (answer.line, date, answer.block, framing, connection), body

    def _framing(self, answer: Answer) -> tuple[BodyReader, bytes]:
        """Say how the body is read, and the field that tells the agent how to (9112 6.3)."""
        length, chunked = b"Content-Length: %d\r\n" % answer.length, b"Transfer-Encoding: chunked\r\n"
        framed = self._request.minor == 1
        if not answer.has_body(self._request.method):
            # To HEAD, and in 304, these fields tell of the body there would be; 204 may have neither (9110 8.6).
            told = length if answer.length >= 0 else chunked if answer.chunked and framed else b""
            return LengthBody(0), b"" if answer.status == 204 else told
        if answer.length >= 0:
            return LengthBody(answer.length), length
        if answer.chunked:
            return ChunkedBody(framed=framed, bound=_LONGEST_TRAILERS), chunked if framed else b""
        return UnboundedBody(framed=framed), chunked if framed else b""

    def relay(self, pieces: list[bytes]) -> None:
        """Send pieces of the response."""
        self._agent.watch()
        if pieces:
            self._agent.write(pieces)

    def end(self, origin: "OriginConnection | None" = None, *, stays: bool = False) -> None:
        """End the exchange: all of the response has been sent; `origin` `stays` open for the next request."""
        self._origin = None
        if origin is not None:
            origin.release()
            if self.takes_body or not origin.is_drained:
                origin.abort()  # it answered early, and never gets the rest
            elif stays:
                self._agent.gateway.pool.give_back(origin)
            else:
                origin.close()
        self._agent.exchange_ended(unread=self.takes_body)

    def lost(self, origin: "OriginConnection", *, said_nothing: bool) -> None:
        """Hear that the origin closed before it answered: try a new connection where that is safe."""
        self._origin = None
        # 9112 9.3.1: a connection that was idle may have been closed while the request was on its way. The next one is
        # new, so there is no third time.
        if said_nothing and origin.reused and self._plan.repeatable:
            self._agent.gateway.note("retried")
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self.fail(502, "the origin closed the connection without an answer")

    def fail(self, status: int, reason: str) -> None:
        """Answer for an origin that cannot be had (502) or is too slow (504)."""
        self.abandon()
        self._agent.gateway.note("unreachable" if status == 502 else "slow")
        self._agent.fail(self._request, Refusal(status, reason), unread=self.takes_body)

    def give_up(self) -> None:
        """Hear that the origin does not go on, or does not even begin."""
        if self.begun:
            self.truncated()
        else:
            self.fail(504, "the origin does not answer in time")

    def truncated(self) -> None:
        """Hear that the response broke off: the agent must see that it did."""
        self.abandon()
        self._agent.gateway.note("truncated")
        self._agent.abort(visibly=not self._request.minor)

    def switch(self, origin: "OriginConnection", answer: Answer, rest: bytes) -> None:
        """Turn both connections into a tunnel, where that was asked for; raises `Refusal`."""
        if not (answer.upgrade and self._request.upgrade):
            raise Refusal(502, "the origin switches to a protocol it was not asked for")
        head = b"%b%bConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % (answer.line, answer.block)
        self._origin = None
        join(self._agent, origin, head + rest)

    async def _connect(self) -> None:
        gateway = self._agent.gateway
        try:
            origin = await gateway.pool.connect(gateway.timeouts.connect)
        except TimeoutError:
            self._connecting = None
            self.fail(504, "the origin accepted no connection in time")
        except OSError:
            self._connecting = None
            self.fail(502, "the origin accepts no connection")
        else:
            self._connecting = None
            self._origin = origin
            held, self._held = self._held, []
            if held:
                self.release_agent()  # before anything is sent, which may call for the agent to be held anew
            origin.begin(self, self._plan.head)
            if held:
                origin.send(held)
            self._agent.watch()
