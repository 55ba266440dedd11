"""The concurrency limit in front of an ASGI application, on asyncio.

A request is in flight until the application has returned. Its place does not wait for its client: it is lent to others
while a request body is slow, and given back when the response has become a stream. The limit is used from one event
loop only, so no lock is needed.
"""

import asyncio
import enum
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from time import monotonic
from typing import Any, Final

from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencyState, Decision, Outcome, Priority, Waiting
from headgate.origin.concurrency import LOOK_INTERVAL, PATIENCE, RequestClasses
from headgate.origin.concurrency_watch import PAUSE, ConcurrencyWatch
from headgate.origin.read_ahead import Message, ReadAhead, Receive
from headgate.origin.refusal import Refusals
from headgate.origin.request_info import field_value
from headgate.origin.response import Response
from headgate.release import NEVER

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_EVENT_STREAM: Final = b"text/event-stream"
_logger = logging.getLogger("headgate.origin")


class AsgiConcurrency:
    """Passes requests to `app` as its limit allows: at once, from the queue, or not at all."""

    def __init__(self, app: App, limit: ConcurrencyLimit, classes: RequestClasses[Scope], status: int) -> None:
        self._app = app
        self._limit = limit
        self._domain_of = classes.domain_of
        self._identifier_of = classes.identifier_of
        self._priority_of = classes.priority_of
        self._refusals = Refusals(status=status)
        self._slow: dict[_Place, None] = {}  # those that wait for their client, in the order of `slow_since`
        self._watch = ConcurrencyWatch(_logger.warning, warn_after=math.inf)
        self._watch_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = NEVER
        self._look_at = NEVER

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return self._limit.state

    async def serve(self, scope: Scope, receive: Receive, send: Send, limited: tuple[str, bytes] | None) -> None:
        """Serve a request, whose domain and identifier may be known."""
        domain = limited[0] if limited is not None else self._domain_of(scope) or ""
        priority = "people" if self._priority_of is None else self._priority_of(scope, domain)
        if priority is None:
            await self._app(scope, receive, send)
            return
        if self._loop is not asyncio.get_running_loop():
            self._use_running_loop()
        ahead, now = None, monotonic()
        if not self._limit.start(now=now):
            flow = limited[1] if limited is not None else self._identifier_of(scope) or b""
            ahead = ReadAhead(receive)
            if not await self._wait(_Request(domain, priority, flow, now), ahead, scope, send):
                return
            receive, now = ahead.receive, monotonic()
        place = _Place(self, domain, now, (receive, send))
        outcome = Outcome.UNKNOWN  # also if the application returns without a response: its client has left
        try:
            await self._app(scope, place.receive, place.send)
        except TimeoutError:
            outcome = Outcome.TIMED_OUT
            raise
        except Exception:
            outcome = Outcome.ANSWERED  # by the server, with 500
            raise
        finally:
            self._give_back(place, outcome)
            if ahead is not None:
                ahead.close()

    async def _wait(self, request: "_Request", ahead: ReadAhead, scope: Scope, send: Send) -> bool:
        """Wait for a decision; return whether the request is in flight, and if not, give back what it has."""
        starts = False
        try:
            self._carry_out(self._limit.queue(request, now=request.since))
            if await ahead.wait(request.decision):
                decision = request.decision.result()
                if not decision.starts:
                    self._watch_until = monotonic() + 2 * PAUSE  # to log the end of refusals
                    accept = field_value(scope["headers"], b"accept")
                    await send_response(self._refusals(decision.retry_after, accept=accept), send)
                starts = decision.starts
        finally:
            if not starts:
                ahead.close()
                self._leave(request)
        return starts

    def _leave(self, request: "_Request") -> None:
        """Give back what a request has that will not reach the application."""
        now = monotonic()
        if not request.decision.done():
            self._carry_out(self._limit.leave(request, now=now))
        elif request.decision.result().starts:
            self._carry_out(self._limit.end(request.domain, 0.0, Outcome.UNKNOWN, now=now))

    def body_expected(self, place: "_Place", now: float) -> None:
        """The application waits for a request body."""
        place.slow_since = now
        self._slow[place] = None

    def body_complete(self, place: "_Place") -> None:
        """The application has the request body, and works on it."""
        if place.latency is not None:
            return
        self._slow.pop(place, None)
        if place.state is _LENT:
            place.state = _HELD
            self._limit.enter()

    def response_begun(self, place: "_Place", message: Message) -> None:
        """The application has sent the head of its response."""
        now = monotonic()
        place.latency = now - place.started
        for name, value in message.get("headers", ()):  # here, since a call for each request costs more
            if name.lower() == b"content-type" and value.lower().startswith(_EVENT_STREAM):
                self._give_back(place, Outcome.ANSWERED)
                return
        if place.slow_since != NEVER:
            self._slow.pop(place, None)
        place.slow_since = now
        self._slow[place] = None

    def _give_back(self, place: "_Place", outcome: Outcome) -> None:
        """Free the place of a request for good."""
        self._slow.pop(place, None)
        state, place.state = place.state, _RETURNED
        if state is not _HELD:
            return
        now = monotonic()
        latency = place.latency
        if latency is None:
            latency = now - place.started
        else:
            outcome = Outcome.ANSWERED
        decisions = self._limit.end(place.domain, latency, outcome, now=now)
        if decisions or self._limit.wakeup < self._due:
            self._carry_out(decisions)

    def _client_is_slow(self, place: "_Place", now: float) -> None:
        """Free a place, for now if its response has not begun."""
        if place.latency is not None:
            self._give_back(place, Outcome.ANSWERED)
        elif place.state is _HELD:
            place.state = _LENT
            self._carry_out(self._limit.end(place.domain, 0.0, Outcome.UNKNOWN, now=now))

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            decision.request.decision.set_result(decision)  # type: ignore[attr-defined]  # they are of `_Request`
        if self._limit.wakeup < self._due:
            self._set_timer(self._limit.wakeup)

    def _use_running_loop(self) -> None:
        """Start the timer; also when requests come from another event loop, as in tests of an application."""
        self._loop = asyncio.get_running_loop()
        self._timer = None
        self._look_at = monotonic() + LOOK_INTERVAL
        self._set_timer(min(self._look_at, self._limit.wakeup))

    def _set_timer(self, due: float) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        now = monotonic()
        self._due = max(due, now)
        self._timer = self._loop.call_later(self._due - now, self._on_timer)

    def _on_timer(self) -> None:
        now = monotonic()
        lag, self._due = now - self._due, NEVER
        try:
            self._limit.lagged(max(0.0, lag), now=now)
            if now >= self._limit.wakeup:
                self._carry_out(self._limit.awake(now=now))
            if now >= self._look_at:
                self._look(now)
        finally:  # waiting requests depend on it
            wakeup = self._limit.wakeup
            if self._limit.in_flight or self._limit.state.queued or wakeup < NEVER or now < self._watch_until:
                self._set_timer(min(self._look_at, wakeup))
            else:
                self._loop = self._timer = None

    def _look(self, now: float) -> None:
        """Free the places of slow clients, and write the log."""
        self._look_at = now + LOOK_INTERVAL
        while self._slow and (place := next(iter(self._slow))).slow_since <= now - PATIENCE:
            del self._slow[place]
            self._client_is_slow(place, now)
        self._watch.look(self._limit.state, {}, now=now)


class _Request(Waiting):
    """A request that waits for the decision of the limit."""

    __slots__ = ("decision",)

    def __init__(self, domain: str, priority: Priority, flow: bytes, since: float) -> None:
        super().__init__(domain, priority, flow, since)
        self.decision: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()


class _State(enum.Enum):
    """The state of a place."""

    HELD = "the request is in flight"
    LENT = "the rest of the request body is awaited; meanwhile another request may be in flight"
    RETURNED = "the request is not in flight any more"


_HELD, _LENT, _RETURNED = _State  # every request needs them, and a lookup in an Enum is slow


class _Place:
    """The place of a request, and its messages."""

    __slots__ = ("_is_read", "_owner", "_receive", "_send", "domain", "latency", "slow_since", "started", "state")

    def __init__(self, owner: AsgiConcurrency, domain: str, started: float, server: tuple[Receive, Send]) -> None:
        self._owner = owner
        self._receive, self._send = server
        self._is_read = False
        self.domain = domain
        self.state = _HELD
        self.started = started
        """The instant at which the application was called, later by what it has waited for the request body."""
        self.latency: float | None = None
        """Seconds from its start to the head of its response; None before that."""
        self.slow_since = NEVER
        """Since when the client may be what the application waits for."""

    def receive(self) -> Awaitable[Message]:
        """Return the next message of the server."""
        return self._receive() if self._is_read else self._read()

    async def _read(self) -> Message:
        now = monotonic()
        if self.slow_since == NEVER:
            self._owner.body_expected(self, now)
        message = await self._receive()
        if self.latency is None:
            self.started += monotonic() - now
        if not message.get("more_body"):
            self._is_read = True
            self._owner.body_complete(self)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message to the server."""
        if self.latency is None and message["type"] == "http.response.start":
            self._owner.response_begun(self, message)
        return self._send(message)


async def send_response(response: Response, send: Send) -> None:
    """Send a response of the middleware."""
    # A copy: the response is kept for other requests, and servers and other middleware may add fields.
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.fields)})
    await send({"type": "http.response.body", "body": response.body})
