"""The agent's side: one connection, its requests read one after another, each decided on and then served.

A connection is in one of five moods: it reads a head; a request is delayed; an `Exchange`, or the `Sending` of a file,
is under way; the body of a request that was turned away is thrown away; or everything is, since the last response has
been sent. Only one request is looked at at a time; what an agent sends ahead waits in a bounded buffer.
"""

import asyncio
import math
import time
from typing import TYPE_CHECKING, cast

from headgate.origin.gateway.chunked import BodyReader, LengthBody
from headgate.origin.gateway.delay import Delay
from headgate.origin.gateway.exchange import Exchange
from headgate.origin.gateway.forwarding import Peer
from headgate.origin.gateway.grammar import Request, cut_head, parse_request
from headgate.origin.gateway.local import gateway_problem, message, turned_away
from headgate.origin.gateway.measures import LINGER, LONGEST_MEMO, MOST_BUFFERED, MOST_PER_TURN, MOST_THROWN_AWAY
from headgate.origin.gateway.plan import Plan, Policy, make_plan
from headgate.origin.gateway.progress import sending_progress
from headgate.origin.gateway.refusal import Refusal
from headgate.origin.gateway.sending import Sending
from headgate.origin.gateway.tunnel import reset_on_close
from headgate.origin.rejection import Response
from headgate.release import Status

if TYPE_CHECKING:
    from headgate.origin.gateway.server import Gateway

__all__ = ["AgentConnection"]


class AgentConnection(asyncio.Protocol):
    """See the module."""

    __slots__ = (
        "_buffer", "_busy", "_closing", "_delay", "_eof", "_head_begun", "_held", "_identifier", "_memo", "_peer",
        "_plan", "_policy", "_progress", "_scanned", "_slow", "_thrown_away", "_transport", "_writable", "client",
        "deadline", "exchange", "gateway", "keep",
    )  # fmt: skip

    def __init__(self, gateway: "Gateway") -> None:
        self.gateway = gateway
        self.client = b""
        """What the gateway counts its connection under; empty when it is not counted."""
        self.exchange: Exchange | Sending | None = None
        """The request under way at the origin, or the file that answers it from here."""
        self.deadline = math.inf
        """When, on the gateway's coarse clock, `expire` is due."""
        self.keep = True
        """Whether the connection goes on after the response under way."""
        self._buffer = bytearray()
        self._scanned = 0
        self._busy = self._closing = self._eof = self._head_begun = self._held = self._slow = False
        self._writable = True
        self._delay: Delay | None = None
        self._thrown_away: BodyReader | None = None
        self._memo = b""
        self._plan = cast("Plan", None)
        self._identifier: bytes | None = None
        self._progress: int | None = None
        self._peer = cast("Peer", None)
        self._policy = cast("Policy", None)
        self._transport = cast("asyncio.Transport", None)

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: see `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._meet(self.gateway.policy)
        self.deadline = self.gateway.pool.now + self.gateway.timeouts.header
        if reason := self.gateway.enter(self, self._peer):
            self._turn_away(gateway_problem(503, reason))

    def connection_lost(self, _error: Exception | None) -> None:
        """End: see `asyncio.Protocol`."""
        self._closing = True
        self.gateway.leave(self)
        if self._delay is not None:
            self._delay.leave()
            self._delay = None
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()

    def eof_received(self) -> bool:
        """Hear that the agent will send no more; returns whether it is still owed something."""
        self._eof = True
        halves = self._transport.can_write_eof()  # TLS has none: its loops close, and complain of what they are asked
        exchange = self.exchange
        if exchange is not None and not exchange.takes_body:
            return halves
        if self._buffer and exchange is None and self._delay is None and not self._closing:
            self._go_on()  # there may be whole requests yet, that wait for their turn or for the agent to read
            return halves
        # Also a delayed request ends here: an agent that only closed its sending half looks like one that left.
        return False

    def pause_writing(self) -> None:
        """Hold the origin back: the agent reads slowly."""
        self._writable = False
        if self.exchange is not None:
            self.watch()
            self.exchange.hold_origin()

    def resume_writing(self) -> None:
        """Let the origin go on."""
        self._writable = True
        if self.exchange is not None:
            self.watch()
            self.exchange.release_origin()
        elif not self._closing:
            self._go_on()

    def data_received(self, data: bytes) -> None:
        """Read; the head that came last time, alone and again, takes the short way."""
        if data == self._memo and not self._busy and not self._buffer and self._writable:
            plan = self._plan
            if plan.policy is self.gateway.policy:
                self._head_begun = False
                self._decide(plan)
                return
        exchange = self.exchange
        if exchange is not None and exchange.takes_body:
            data = exchange.feed(data)
        elif self._thrown_away is not None:
            data = self._throw_away(data)
        if data and not self._closing:
            self._buffer += data
            self._advance()
            self._regulate()

    # What the exchange calls.

    def answered(self, whole: bytes) -> None:
        """Send the whole of a plain response, and go on."""
        self.exchange = None
        self._busy = False
        self._transport.write(whole)
        gateway = self.gateway
        self.deadline = gateway.pool.now + gateway.timeouts.idle
        if self._buffer or self._eof:
            self._go_on()

    def write(self, pieces: list[bytes]) -> None:
        """Send pieces of a response."""
        if not self._transport.is_closing():
            self._transport.write(b"".join(pieces))  # not writelines(): see OriginConnection.send

    def exchange_ended(self, *, unread: bool) -> None:
        """Go on after a whole response; `unread` when the request's body has not been read to its end."""
        self._let_go()
        self.deadline = self.gateway.pool.now + self.gateway.timeouts.idle
        if unread:
            self._linger()
        elif not self.keep or self.gateway.draining:
            self._close()
        else:
            self._go_on()

    def fail(self, request: Request, refusal: Refusal, *, unread: bool) -> None:
        """Answer for the origin, of whose response nothing has been sent."""
        self._let_go()
        response = gateway_problem(refusal.status, refusal.reason)
        if unread:
            self._send_last(response)
        else:
            self._answer(response, request, read=True)
            self._go_on()

    def refuse_body(self, refusal: Refusal, *, begun: bool) -> None:
        """Answer a request whose body is wrong; when the response has `begun`, there is only silence left."""
        self.exchange = None
        if begun:
            self.abort()
        else:
            self._refuse(refusal)

    def abort(self, *, visibly: bool = False) -> None:
        """Close at once; `visibly` with a reset, for agents to whom a mere end would look like the body's end."""
        self.exchange = None
        self._closing = True
        if visibly:
            reset_on_close(self._transport)
        self._transport.abort()

    def hand_over(self, protocol: asyncio.Protocol) -> tuple[asyncio.Transport, bytes]:
        """Give the connection away to `protocol`; returns its transport and what the agent sent ahead."""
        self.exchange = None
        self._closing = True
        self.gateway.leave(self)
        self.release_reading()
        self._transport.set_protocol(protocol)
        return self._transport, bytes(self._buffer)

    def hold_reading(self, *, origin_is_slow: bool = False) -> None:
        """Read no more for now: too much was sent ahead, or the origin is slow."""
        self._slow, self._held = self._slow or origin_is_slow, self._held or not origin_is_slow
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def release_reading(self, *, origin_is_slow: bool = False) -> None:
        """Read again, unless there is the other reason not to."""
        self._slow, self._held = self._slow and not origin_is_slow, self._held and origin_is_slow
        if not self._slow and not self._held and not self._transport.is_closing():
            self._transport.resume_reading()

    # What the gateway calls.

    def watch(self) -> None:
        """Set the deadline anew: something moved."""
        gateway, exchange = self.gateway, self.exchange
        if exchange is not None and (exchange.waits_for_agent or not self._writable):
            seconds = gateway.timeouts.idle
        elif exchange is not None and exchange.begun:
            seconds = gateway.timeouts.response_body or math.inf
        else:
            seconds = gateway.timeouts.response
        self.deadline = gateway.pool.now + seconds

    def expire(self) -> None:
        """Give up waiting: the deadline is over. A head has no more time while an earlier response is still read."""
        if not self._head_begun and self._is_read():
            return
        exchange = self.exchange
        if exchange is not None and self._writable and not self._closing:
            if exchange.waits_for_agent and not self._slow:
                exchange.abandon()
                self.refuse_body(Refusal(408, "the request's body does not come"), begun=exchange.begun)
            else:
                exchange.give_up()
        elif self._buffer and not self._busy and self._writable:
            self._refuse(Refusal(408, "the request's head does not come"))
        else:
            self._transport.abort()  # and then connection_lost() sees to what is under way at the origin

    def _is_read(self) -> bool:
        """Say whether the agent took some of what it is sent since the last look; then there is a new deadline."""
        progress = sending_progress(self._transport)
        moves = progress is not None and progress != self._progress
        self._progress = progress
        if moves:
            self.deadline = self.gateway.pool.now + self.gateway.timeouts.idle
        return moves

    def drain(self) -> None:
        """End after the response under way; at once when there is none."""
        if self.exchange is not None:
            self.exchange.plain = False
        elif not self._busy and not self._buffer:
            self._close()

    # Requests, one after another.

    def _go_on(self) -> None:
        """Look at what the agent sent ahead."""
        self._advance()
        self._regulate()
        if self._eof and not self._busy and not self._closing and self._writable:
            if self._buffer:
                self._refuse(Refusal(400, "the request ends within its head"))
            else:
                self._close()

    def _regulate(self) -> None:
        """Read no more than is wanted: what was sent ahead waits at the agent's."""
        too_much = len(self._buffer) > MOST_BUFFERED and (self._busy or not self._writable)
        if too_much and not self._held:
            self.hold_reading()
        elif self._held and not too_much:
            self.release_reading()

    def _advance(self) -> None:
        """Read heads and see to them, until one is incomplete or under way, or the agent does not read."""
        seen, bounds = 0, self.gateway.bounds
        while self._buffer and self._writable and not self._busy:
            if seen == MOST_PER_TURN:
                self._busy = True
                asyncio.get_running_loop().call_soon(self._take_turn)
                return
            seen += 1
            try:
                head = cut_head(self._buffer, self._scanned, bounds)
                if head is None:
                    self._wait_for_head()
                    return
                self._scanned, self._head_begun = 0, False
                request = parse_request(head, bounds)
            except Refusal as refusal:
                self._refuse(refusal)
                return
            self._see_to(request, head)

    def _take_turn(self) -> None:
        if not self._closing:
            self._busy = False
            self._go_on()

    def _wait_for_head(self) -> None:
        # Once for each request: an empty line before it, however often and in however many pieces, gives no more time.
        if self._buffer and not self._head_begun:
            self._head_begun = True
            self.deadline = self.gateway.pool.now + self.gateway.timeouts.header
        self._scanned = len(self._buffer)

    def _meet(self, policy: Policy) -> None:
        """See who the agent is in the eyes of a policy: another may trust, or tell agents apart by, other things."""
        self._policy, self._peer = policy, self.gateway.peer(self._transport)
        self._identifier = policy.identify.per_connection(self._peer.address)

    def _see_to(self, request: Request, head: bytes) -> None:
        policy = self.gateway.policy
        local = policy.local(request) if policy.local is not None else None
        if local is not None:
            self._answer(local, request)
            return
        if policy is not self._policy:
            self._meet(policy)
        plan = make_plan(
            request, policy, self._peer, identifier=self._identifier, authority=self.gateway.pool.authority
        )
        if not request.has_body and len(head) <= LONGEST_MEMO:
            self._memo, self._plan = head, plan
        self._decide(plan)

    def _decide(self, plan: Plan) -> None:
        """Ask the gatekeeper, and obey."""
        if plan.domain is None:
            self._forward(plan)
            return
        now = time.time()
        accounting = plan.policy.gatekeeper.admit(plan.domain, plan.identifier, now=now)
        status = accounting.status
        if status is Status.ACCEPTED:
            self._forward(plan)
        elif status is Status.DELAYED:
            self._busy = True
            self._delay = Delay(plan, accounting, self._release)
            self.deadline = math.inf
        else:
            self._answer(turned_away(self.gateway, plan, accounting, now=now), plan.request)

    def _let_go(self) -> None:
        """Be done with an exchange; an origin that did not read the body's end keeps nobody from the next request."""
        self.exchange = None
        self._busy = False
        if self._slow:
            self.release_reading(origin_is_slow=True)

    def _release(self, plan: Plan) -> None:
        self._delay = None
        self._forward(plan)

    def _forward(self, plan: Plan) -> None:
        self._busy = True
        exchange = self.exchange = Exchange(self, plan)
        gateway = self.gateway
        self.deadline = gateway.pool.now + gateway.timeouts.response
        exchange.start()
        if self._buffer and exchange.takes_body:
            self._buffer[:] = exchange.feed(bytes(self._buffer))
            self.release_reading()

    # Responses of the gateway's own, and ends.

    def _answer(self, response: Response, request: Request, *, read: bool = False) -> None:
        """Answer without the origin; `read` when the request's body has been read already."""
        unread = request.has_body and not read
        # An agent that waits for 100 may or may not send its body now: only the end of the connection is clear.
        short = not request.expects and 0 < request.length <= MOST_THROWN_AWAY and response.part is None
        self.keep = keep = request.keep_alive and (short or not unread) and not self.gateway.draining
        self.write([message(response, keep=keep, minor=request.minor, without_body=request.method == b"HEAD")])
        self.deadline = self.gateway.pool.now + self.gateway.timeouts.idle
        if response.part is not None:
            self._busy = True
            self.exchange = Sending(self, self._transport, response.part, unread=unread)
            self.exchange.start()
        elif not keep:
            self._linger() if unread or self._buffer else self._close()
        elif unread:
            self._busy = True
            self._thrown_away = LengthBody(request.length)
            self._buffer[:] = self._throw_away(bytes(self._buffer))

    def _throw_away(self, data: bytes) -> bytes:
        """Read the body of a request that was turned away; return what comes after it."""
        body = self._thrown_away
        if body is None:
            return data
        body.feed(data)
        if not body.done:
            return b""
        self._thrown_away = None
        self._busy = False
        return body.rest

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that is none, and listen no more: where the next one begins, nobody can say."""
        self.gateway.note("refused")
        self._send_last(gateway_problem(refusal.status, refusal.reason, allow=self.gateway.allow))

    def _send_last(self, response: Response) -> None:
        self.write([message(response, keep=False)])
        self._linger()

    def _linger(self) -> None:
        """Close, but read on for a while: unread bytes would make the system reset what was just sent (9112 9.6)."""
        self._closing = self._busy = True
        self._buffer.clear()
        self.deadline = self.gateway.pool.now + LINGER
        if self._eof:
            self._transport.close()
        elif not self._transport.is_closing():
            self._slow = False
            self.release_reading()
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def _turn_away(self, response: Response) -> None:
        """Answer a connection that there is no room for, and close it: it is not counted, and nothing waits for it."""
        self._closing = self._busy = True
        self.write([message(response, keep=False)])
        self._transport.close()
        # With TLS, close() waits for the client.
        asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    def _close(self) -> None:
        self._closing = self._busy = True
        self.deadline = self.gateway.pool.now + self.gateway.timeouts.response
        self._transport.close()
