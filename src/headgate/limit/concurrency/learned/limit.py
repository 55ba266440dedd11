"""A learned limit: collects the requests that end, and has the limit that each new one is compared with."""

from collections.abc import Mapping
from math import inf
from typing import Final

from headgate.limit.concurrency.learned.capacity import LearnedCapacity
from headgate.limit.concurrency.learned.domain_windows import FULL, DomainWindow, DomainWindows
from headgate.limit.concurrency.learned.law import SATURATED, LimitLaw
from headgate.limit.concurrency.values import ConcurrencySettings, LimitReason, Outcome

MAX_LAG: Final = 0.05
"""Seconds of delay of the event loop, beyond which the gate itself is overloaded.

Chosen: far above the millisecond of a loop that is busy, and below what a person notices.
"""

_ANSWERED: Final = Outcome.ANSWERED
_TIMED_OUT: Final = Outcome.TIMED_OUT
_WINDOW: Final = 0.1
"""Seconds after which what has ended is looked at.

0.05: no effect within chance, at twice the cost; 0.2: an origin all of whose requests time out has 9 instead of 5
places left after 25 s.
"""
_RECENT: Final = 100
"""Requests over which the saturation is averaged.

Chosen; 50 and 200 tried: the limit after a step is 0.03 of the knee lower and higher, goodput the same within chance.
"""


class LearnedLimit:
    """A limit of the requests in flight that follows the capacity of an origin: collects windows for its law."""

    def __init__(self, settings: ConcurrencySettings) -> None:
        self.limit = 0.0
        """The limit now."""
        self.capacity = LearnedCapacity()
        """The requests per second that the origin answers at most."""
        self._settings = settings
        self._domains = DomainWindows()
        self._windows = self._domains.windows
        self._law = LimitLaw(settings, self._domains)
        self._started = 0.0  # the window
        self._due = inf
        self._saturation = 0.0
        self._lagged = False
        self._put()

    @property
    def reason(self) -> LimitReason:
        """Why the limit was changed last."""
        return self._law.reason

    @property
    def changes(self) -> Mapping[LimitReason, int]:
        """How often the limit was changed so far, or kept after a trial."""
        return self._law.changes

    @property
    def baseline(self) -> float:
        """Seconds that a response takes without a queue at the origin, the mean of the last window; 0 if not known."""
        return self._law.baseline

    def reconfigure(self, settings: ConcurrencySettings) -> None:
        """Put other settings in force; what was learned stays."""
        self._settings = settings
        self._law.reconfigure(settings)
        self._put()

    def ended(self, domain: str, latency: float, outcome: Outcome, in_flight: int, *, now: float) -> bool:
        """Take the end of a request, which `in_flight` counts, too; returns whether the limit has changed."""
        try:
            window = self._windows[domain]
        except KeyError:
            window = self._windows[domain] = DomainWindow()
            if self._due == inf:
                self._started, self._due = now, now + _WINDOW
        if outcome is _ANSWERED:
            window.answered += 1
            window.seconds += latency
            if in_flight > self._half:
                window.loaded += 1
                window.loaded_seconds += latency
        elif outcome is _TIMED_OUT:
            window.timeouts += 1
            latency = inf
        else:
            return False
        window.in_flight += in_flight
        if in_flight >= self._full:
            window.full += 1
        if latency > self._slow:
            window.slow += 1
        if now < self._due:
            return False
        return self._close(now)

    def lagged(self, seconds: float) -> None:
        """Take a delay of the event loop."""
        if seconds > MAX_LAG:
            self._lagged = True

    def _close(self, now: float) -> bool:
        """End a window; returns whether the limit has changed."""
        window = self._domains.close(now - self._started)
        self._started, self._due = now, now + _WINDOW
        self._saturation += (window.full - self._saturation) * window.requests / (window.requests + _RECENT)
        has_pause = window.has_pause
        if self._saturation >= SATURATED and not has_pause:
            self.capacity.add(window.answered, window.seconds)
        self._law.observe(window)
        if has_pause or self._settings.freeze:
            return False
        self._law.close_window(window, self._saturation, lagged=self._lagged, now=now)
        self._lagged = False
        if self._law.limit == self.limit:
            return False
        self._put()
        return True

    def _put(self) -> None:
        """Take the limit of the law, and what each request is compared with."""
        self.limit = self._law.limit
        self._half, self._full = self.limit / 2, FULL * self.limit
        self._slow = self._law.slow_latency
