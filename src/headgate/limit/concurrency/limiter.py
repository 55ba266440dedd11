"""Admits requests to an origin: a request starts at once, waits in the queue, or is refused."""

from collections.abc import Callable, Sequence
from typing import Final

from headgate.limit.concurrency.values import ConcurrencySettings, ConcurrencyState, Decision, Outcome, Waiting
from headgate.release import NEVER

_NOTHING: Final[Sequence[Decision]] = ()
_FIRST_LIMIT: Final = 20


class ConcurrencyLimit:
    """Decides which requests are in flight at an origin.

    `start` is called for each request; if it returns False, `queue` takes the request, and later calls decide on it.
    `end` is called when a request that was in flight ends. Each call returns the decisions on waiting requests, in the
    order in which they are to be carried out. `awake` is due at `wakeup`. `now` is in seconds of any clock that is
    never set back, and `draw` returns random numbers from 0 to 1. Not for streams, such as WebSockets: their duration
    says nothing of the load.
    """

    def __init__(self, settings: ConcurrencySettings, draw: Callable[[], float]) -> None:
        self.settings = settings
        self.wakeup = NEVER
        """The instant at which `awake` is to be called; `NEVER` if it need not be. Read after each call but `start`."""
        self.in_flight = 0
        """Requests that have started and not ended."""
        self.limit = float(_FIRST_LIMIT if settings.max == "learned" else settings.max)
        """The number of requests that may be in flight now."""
        self._draw = draw
        self._waiting: dict[Waiting, None] = {}
        self._monitors = settings.mode != "enforce"

    def start(self, *, now: float) -> bool:  # noqa: ARG002
        """Return whether a request that arrives now may start; if so, it is in flight."""
        if self._monitors or (self.in_flight < self.limit and not self._waiting):
            self.in_flight += 1
            return True
        return False

    def enter(self) -> None:
        """Count a request as in flight whatever the limit is: the origin has it already."""
        self.in_flight += 1

    def queue(self, request: Waiting, *, now: float) -> Sequence[Decision]:  # noqa: ARG002
        """Take a request that could not start: it waits, or it or another one is refused."""
        if len(self._waiting) >= self.settings.queue:
            return (Decision(request, starts=False, retry_after=1.0 + self._draw()),)
        self._waiting[request] = None
        return _NOTHING

    def end(self, domain: str, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:  # noqa: ARG002
        """Take the end of a request of a domain, whose response took `latency` seconds to begin."""
        self.in_flight -= 1
        return self._start_waiting() if self._waiting else _NOTHING

    def leave(self, request: Waiting, *, now: float) -> Sequence[Decision]:  # noqa: ARG002
        """Remove a waiting request: its client has left."""
        self._waiting.pop(request, None)
        return _NOTHING

    def awake(self, *, now: float) -> Sequence[Decision]:  # noqa: ARG002
        """Do what was due at `wakeup`."""
        return _NOTHING

    def reconfigure(self, settings: ConcurrencySettings, *, now: float) -> Sequence[Decision]:  # noqa: ARG002
        """Put other settings in force; what was learned stays, and the requests that are in flight or wait."""
        self.settings = settings
        self._monitors = settings.mode != "enforce"
        if settings.max != "learned":
            self.limit = float(settings.max)
        return self._start_waiting()

    def lagged(self, seconds: float, *, now: float) -> None:
        """Take a delay of the caller's event loop; one above 50 ms means that the gate itself is overloaded."""

    @property
    def state(self) -> ConcurrencyState:
        """What the limit is and does now."""
        return ConcurrencyState(self.limit, self.in_flight, len(self._waiting), self.settings.mode, "start", 0.0)

    def _start_waiting(self) -> Sequence[Decision]:
        decisions = []
        while self._waiting and (self._monitors or self.in_flight < self.limit):
            request = next(iter(self._waiting))
            del self._waiting[request]
            self.in_flight += 1
            decisions.append(Decision(request, starts=True))
        return decisions
