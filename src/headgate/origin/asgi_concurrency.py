"""The concurrency limit in front of an ASGI application, on asyncio.

A request is in flight until the application has returned. Its place does not wait for its client: it is lent to others
while a request body is slow, and given back when the response has become a stream. The limit is used from one event
loop only, so no lock is needed.
"""

import asyncio
import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from time import monotonic
from typing import Any, Final

import msgspec

from headgate.limit.concurrency import (
    PRIORITIES,
    ConcurrencyLimit,
    ConcurrencyState,
    Decision,
    Outcome,
    Priority,
    Waiting,
)
from headgate.limit.concurrency.long_refusals import DAY
from headgate.origin.concurrency import CLIENT_PATIENCE, LOOK_INTERVAL, RequestClasses, outcome_of
from headgate.origin.concurrency_watch import PAUSE, ConcurrencyWatch
from headgate.origin.read_ahead import Message, ReadAhead, Receive
from headgate.origin.refusal import Refusals
from headgate.origin.request_info import field_value
from headgate.origin.response import Response
from headgate.release import NEVER

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_SEQUENCES: Final = (list, tuple)
_ANSWERED, _UNKNOWN = Outcome.ANSWERED, Outcome.UNKNOWN  # a lookup in an Enum is slow
_logger = logging.getLogger("headgate.origin")


class AsgiConcurrency:
    """Passes requests to `app` as its limit allows: at once, from the queue, or not at all."""

    def __init__(self, app: App, limit: ConcurrencyLimit, classes: RequestClasses[Scope], status: int) -> None:
        self._app = app
        self._limit = limit
        self._classes = classes
        self._only = classes.only
        self._refusals = Refusals(status=status)
        self._places: set[_Place] = set()  # those of the requests in flight
        self._admitted = dict.fromkeys(PRIORITIES, 0)
        self._watch = ConcurrencyWatch(_logger.warning, warn_after=DAY)
        self._watch_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # the instant of the timer; 0 without one
        self._look_at = NEVER

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return self._limit.state

    @property
    def refused_for(self) -> Mapping[Priority, float]:
        """For how many seconds most requests of each class have been refused."""
        return self._watch.refused_for(monotonic())

    async def serve(self, scope: Scope, receive: Receive, send: Send, limited: tuple[str, bytes] | None) -> None:
        """Serve a request, whose domain and identifier may be known."""
        domain, priority = self._only or self._classes.of(scope, limited)
        if priority is None:
            await self._app(scope, receive, send)
            return
        self._admitted[priority] += 1
        ahead, now = None, monotonic()
        if now >= self._due:  # not for each request: `get_running_loop` costs a system call in Python 3.11
            self._start_timer()
        if not self._limit.start(now=now):
            self._start_timer()
            flow = limited[1] if limited is not None else self._classes.identifier_of(scope) or b""
            ahead = ReadAhead(receive)
            if not await self._wait(_Request(domain, priority, flow, now), ahead, scope, send):
                return
            receive, now = ahead.receive, monotonic()
        place = _Place(self, receive, send, domain, now)
        self._places.add(place)
        try:
            await self._app(scope, place.receive, place.send)
        except BaseException as error:
            self.give_back(place, outcome_of(error))
            raise
        else:
            self.give_back(place, _UNKNOWN)  # if the application returns without a response, its client has left
        finally:
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

    def take_back(self, place: "_Place") -> None:
        """Put a request whose place was lent in flight again."""
        place.is_lent = False
        self._places.add(place)
        self._limit.enter(now=monotonic())

    def give_back(self, place: "_Place", outcome: Outcome) -> None:
        """Free the place of a request for good, if that has not been done."""
        try:
            self._places.remove(place)
        except KeyError:
            place.is_lent = False
            return
        now, begun_at, limit = monotonic(), place.begun_at, self._limit
        if begun_at is None:
            begun_at = now
        else:
            outcome = _ANSWERED
        decisions = limit.end(place.domain, begun_at - place.started, outcome, now=now)
        if decisions or limit.wakeup < self._due:
            self._carry_out(decisions)

    def _client_is_slow(self, place: "_Place", now: float) -> None:
        """Free a place, for now if its response has not begun."""
        if place.begun_at is not None:
            self.give_back(place, _ANSWERED)
        else:
            self._places.remove(place)
            place.is_lent = True
            self._carry_out(self._limit.end(place.domain, 0.0, Outcome.UNKNOWN, now=now))

    def _carry_out(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            decision.request.decision.set_result(decision)  # type: ignore[attr-defined]  # they are of `_Request`
        if self._limit.wakeup < self._due:
            self._set_timer(self._limit.wakeup)

    def _start_timer(self) -> None:
        """Set the timer unless it is set in this event loop: tests of an application often have one for each."""
        if self._timer is None or self._loop is not get_running_loop():
            self._look_at = monotonic() + LOOK_INTERVAL
            self._set_timer(min(self._look_at, self._limit.wakeup))

    def _set_timer(self, due: float) -> None:
        loop = get_running_loop()
        if self._timer is not None and self._loop is loop:
            self._timer.cancel()
        now = monotonic()
        self._loop, self._due = loop, max(due, now)
        self._timer = loop.call_later(self._due - now, self._on_timer)

    def _on_timer(self) -> None:
        now = monotonic()
        lag, self._due = now - self._due, NEVER
        try:
            self._limit.lagged(max(0.0, lag))
            if now >= self._limit.wakeup:
                self._carry_out(self._limit.awake(now=now))
            if now >= self._look_at:
                self._look(now)
        finally:  # waiting requests depend on it
            wakeup = self._limit.wakeup
            if self._limit.in_flight or wakeup < NEVER or now < self._watch_until:
                self._set_timer(min(self._look_at, wakeup))
            else:
                self._loop, self._timer, self._due = None, None, 0.0

    def _look(self, now: float) -> None:
        """Free the places of slow clients, and write the log."""
        self._look_at = now + LOOK_INTERVAL
        for place in [place for place in self._places if place.slow_since <= now - CLIENT_PATIENCE]:
            self._client_is_slow(place, now)
        self._watch.look(self._limit.state, self._admitted, now=now)


class _Request(Waiting):
    """A request that waits for the decision of the limit."""

    __slots__ = ("decision",)

    def __init__(self, domain: str, priority: Priority, flow: bytes, since: float) -> None:
        super().__init__(domain, priority, flow, since)
        self.decision: asyncio.Future[Decision] = get_running_loop().create_future()


class _Place(msgspec.Struct, eq=False):
    """The place of a request, and its messages."""

    owner: AsgiConcurrency
    server_receive: Receive
    server_send: Send
    domain: str
    started: float
    """The instant at which the application was called, later by what it has waited for the request body."""
    begun_at: float | None = None
    """The instant of the head of its response; None before that."""
    reads_since: float = NEVER
    """Since when the application has read the request body, if that is not complete."""
    is_lent: bool = False
    """Whether the rest of the request body is awaited, and another request may be in flight meanwhile."""
    is_read: bool = False
    """Whether the request body is complete."""

    @property
    def slow_since(self) -> float:
        """Since when the client may be what the application waits for."""
        return self.reads_since if self.begun_at is None else self.begun_at

    def receive(self) -> Awaitable[Message]:
        """Return the next message of the server."""
        return self.server_receive() if self.is_read else self._read()

    async def _read(self) -> Message:
        now = monotonic()
        if self.reads_since == NEVER:
            self.reads_since = now
        message = await self.server_receive()
        if self.begun_at is None:
            self.started += monotonic() - now
        if not message.get("more_body"):
            self.is_read = True
            self.reads_since = NEVER
            if self.is_lent:
                self.owner.take_back(self)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message to the server."""
        if self.begun_at is None and message["type"] == "http.response.start":
            self.begun_at = monotonic()
            fields = message.get("headers")
            if isinstance(fields, _SEQUENCES):  # another iterable could be read only once
                for name, value in fields:
                    if name == b"content-type":  # in ASGI, names are in lower case
                        if value.startswith(b"text/event-stream"):
                            self.owner.give_back(self, _ANSWERED)
                        break
        return self.server_send(message)


async def send_response(response: Response, send: Send) -> None:
    """Send a response of the middleware."""
    # A copy: the response is kept for other requests, and servers and other middleware may add fields.
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.fields)})
    await send({"type": "http.response.body", "body": response.body})
