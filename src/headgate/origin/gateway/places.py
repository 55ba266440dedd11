"""The places of a gateway's requests at its origin, as the concurrency limit grants them.

A request has a place from its start until its response is complete; a place is given back once, however the exchange
ends. A place does not wait for a client: while a request body arrives slowly it is lent to other requests, and a
response that has become a stream gives it back. The limit itself is in `headgate.limit.concurrency`; this module adds
the clock, the timer and the requests.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headgate.http.h1 import RequestHead
from headgate.limit.concurrency import (
    ConcurrencyLimit,
    ConcurrencySettings,
    ConcurrencyState,
    Decision,
    Outcome,
    Priority,
    Waiting,
)
from headgate.origin.concurrency import CLIENT_PATIENCE
from headgate.origin.gateway.states import PLACE_TRANSITIONS, PlaceEvent, PlaceState

PATIENCE: Final = CLIENT_PATIENCE + 0.25
"""`CLIENT_PATIENCE` in seconds of a coarse clock, which may be a quarter of a second behind."""
_NO_LATENCY: Final = -1.0
# A lookup in an Enum is slow.
_HELD: Final = PlaceState.HELD
_GIVEN_BACK: Final = PLACE_TRANSITIONS[_HELD][PlaceEvent.GIVE_BACK]
_ANSWERED: Final = Outcome.ANSWERED
_MIN_TIMER: Final = 0.001


class Timer(Protocol):
    """A timer that is set."""

    def cancel(self) -> None:
        """Cancel it."""


CallLater = Callable[[float, Callable[[], None]], Timer]
"""Sets a timer: seconds, and what to call then."""


class QueueingClient(Protocol):
    """The side of a client's connection that waits for a place."""

    def start(self, request: RequestHead, place: "Place") -> None:
        """Forward a request that has waited."""

    def refuse(self, request: RequestHead, retry_after: float) -> None:
        """Answer a request that has waited; its client is asked to come back after `retry_after` seconds."""

    def abort(self) -> None:
        """Close the connection at once."""


class QueuedRequest(Waiting):
    """A request that waits for a place; `cancel` when its client leaves."""

    __slots__ = ("_places", "client", "head")

    def __init__(
        self, places: "OriginPlaces", client: QueueingClient, head: RequestHead, waiting: tuple[str, Priority, bytes]
    ) -> None:
        # Not by super().__init__(): in overload, one is made for each request.
        self.domain, self.priority, self.flow = waiting
        self.since = places.clock()
        self._places = places
        self.client = client
        self.head = head

    def cancel(self) -> None:
        """Leave the queue."""
        self._places.leave(self)


class Place:
    """One request's place at the origin."""

    __slots__ = ("_latency", "_places", "_started", "domain", "state")

    def __init__(self, places: "OriginPlaces", domain: str, now: float) -> None:
        self.state = _HELD
        self._places = places
        self.domain = domain
        self._started = now
        self._latency = _NO_LATENCY

    def body_expected(self) -> None:
        """The request has a body that has not arrived."""
        if self.state is _HELD:
            self._places.watch(self)

    def body_complete(self) -> None:
        """The request's body is complete: the origin is what takes time from now on."""
        if self._latency != _NO_LATENCY:
            return
        self._started = self._places.clock()
        if self.state is PlaceState.LENT:
            self._move(PlaceEvent.TAKE)
            self._places.limit.enter(now=self._started)
        self._places.unwatch(self)

    def response_begun(self, *, is_stream: bool) -> None:
        """The head of the response has arrived; the body of a stream may last for hours."""
        self._latency = self._places.clock() - self._started
        if is_stream:
            self.give_back(_ANSWERED)
        elif self.state is _HELD:
            self._places.watch(self)

    def client_is_slow(self) -> None:
        """Free the place, for now if the response has not begun."""
        if self._latency == _NO_LATENCY:
            self._move(PlaceEvent.LEND)
            self._places.end(self, 0.0, Outcome.UNKNOWN, now=self._places.clock())
        else:
            self.give_back(Outcome.ANSWERED)

    def give_back(self, outcome: Outcome) -> None:
        """Free the place for good, if that has not been done."""
        if self.state is not _HELD:
            self._move(PlaceEvent.GIVE_BACK)
            return
        self.state = _GIVEN_BACK
        places, latency = self._places, self._latency
        now = places.clock()
        if latency == _NO_LATENCY:
            latency = now - self._started
        else:
            outcome = _ANSWERED
        places.end(self, latency, outcome, now=now)

    def _move(self, event: PlaceEvent) -> None:
        self.state = PLACE_TRANSITIONS[self.state][event]


class OriginPlaces:
    """The concurrency limit of a gateway, with the requests that wait for a place."""

    def __init__(
        self,
        settings: ConcurrencySettings,
        *,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        call_later: CallLater | None = None,
    ) -> None:
        self.limit = ConcurrencyLimit(settings, draw)
        self.clock = clock
        self.without_domain = 0
        """The number of requests so far that had no domain."""
        self._call_later = call_later or _call_later
        self._slow: dict[Place, float] = {}  # since when the client may be what the origin waits for; in this order
        self._coarse_now = clock()
        self._timer: Timer | None = None
        self._due = math.inf

    @property
    def enforces(self) -> bool:
        """Whether requests have to wait for a place."""
        return self.limit.settings.mode == "enforce"

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return self.limit.state

    def take(self, domain: str) -> Place | None:
        """Return a place for a request of a domain; None if none is free. Called once for each request."""
        if not domain:
            self.without_domain += 1
        now = self.clock()
        return Place(self, domain, now) if self.limit.start(now=now) else None

    def queue(self, request: QueuedRequest) -> Decision | None:
        """Queue a request that got no place; returns the decision on it if there is one already."""
        return self._carry_out(self.limit.queue(request, now=request.since), own=request)

    def end(self, place: Place, latency: float, outcome: Outcome, *, now: float) -> None:
        """Free a place; others may start in it."""
        self._slow.pop(place, None)
        decisions = self.limit.end(place.domain, latency, outcome, now=now)
        if decisions or self.limit.wakeup < self._due:
            self._carry_out(decisions)

    def started(self, request: QueuedRequest) -> Place:
        """Return the place of a request that has been decided to start."""
        return Place(self, request.domain, self.clock())

    def leave(self, request: QueuedRequest) -> None:
        """Remove a waiting request."""
        self._carry_out(self.limit.leave(request, now=self.clock()))

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force; what was learned stays, and who waits."""
        self._carry_out(self.limit.reconfigure(settings, now=self.clock()))

    # Slow clients.

    def watch(self, place: Place) -> None:
        """Free a place unless it is given back, or `unwatch` is called, within `PATIENCE` seconds."""
        self._slow.pop(place, None)
        self._slow[place] = self._coarse_now

    def unwatch(self, place: Place) -> None:
        """End the watch on a place."""
        self._slow.pop(place, None)

    def tick(self, now: float, lag: float) -> None:
        """Free the places that have waited too long for a client; `lag` is by how much the tick was late."""
        self._coarse_now = now
        self.limit.lagged(lag)
        while self._slow:
            place, since = next(iter(self._slow.items()))
            if now - since < PATIENCE:
                break
            del self._slow[place]
            place.client_is_slow()
        self._set_timer()

    # Decisions, and the timer for those that are due later.

    def _carry_out(self, decisions: Sequence[Decision], own: QueuedRequest | None = None) -> Decision | None:
        """Start or refuse the requests that are decided on, but for `own`; returns the decision on that one."""
        found = None
        for decision in decisions:
            request = decision.request
            if request is own:
                found = decision
                continue
            assert isinstance(request, QueuedRequest)
            place = self.started(request) if decision.starts else None
            try:
                if place is not None:
                    request.client.start(request.head, place)
                else:
                    request.client.refuse(request.head, decision.retry_after)
            except Exception as error:  # a defect must cost neither the place nor the other decisions
                if place is not None:
                    place.give_back(Outcome.UNKNOWN)
                _report(error)
                request.client.abort()
        self._set_timer()
        return found

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        due = self.limit.wakeup
        if due >= self._due:
            return  # the timer that is set will look again
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._call_later(max(_MIN_TIMER, due - self.clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._due = None, math.inf
        now = self.clock()
        self._carry_out(self.limit.awake(now=now) if self.limit.wakeup <= now else ())


def _call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, callback)


def _report(error: Exception) -> None:
    context = {"message": "gateway: a waiting request could not be decided", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
