"""Tells bursts, which a queue is for, from overload, in which every request would wait.

A class is overloaded when requests of it, or of more important classes, have waited without a break for `interval`, and
until none has waited for as long as a request takes. Under overload a request waits for `target` at most. This is the
distinction of CoDel (RFC 8289), on the time scale of the service: below the capacity, the longest queue of a day lasts
for up to 500 completions, whatever the number of servers.
"""

from typing import Final

from headgate.release import NEVER

_COMPLETIONS: Final = 1000
"""Completions for which a queue may last."""
_LONGEST_INTERVAL: Final = 30.0
"""Seconds, unless ten requests take longer."""
_TARGET: Final = 0.5
"""The time that a request may wait under overload, by the time that it takes."""
_MIN_TARGET: Final = 0.01
"""Seconds; an event loop may be late by some of them."""


class Patience:
    """For how long requests may wait, at a completion rate and a limit."""

    def __init__(self, rate: float, limit: float) -> None:
        self.gap = limit / rate
        """Seconds that a request takes: by Little's law, the number in flight divided by the rate."""
        self.interval = max(10.0 * self.gap, min(_COMPLETIONS / rate, _LONGEST_INTERVAL))
        """Seconds after which a queue is overload."""
        self.target = max(_MIN_TARGET, _TARGET * self.gap)
        """Seconds that a request may wait under overload."""


class Overload:
    """Knows whether one class is overloaded."""

    def __init__(self) -> None:
        self.is_on = False
        self._waits = False
        self._since = self._last = -NEVER  # when the queue began, and when it was last seen

    def look(self, ahead: int, patience: Patience, *, now: float) -> None:
        """Take how many requests of the class, and of those above it, wait."""
        if self._waits:
            self._last = now
        elif not self.is_on or now >= self._last + patience.gap:
            self.is_on, self._since = False, now
        self._waits = ahead > 0
        self.is_on = self.is_on or (self._waits and now >= self._since + patience.interval)

    def wakeup(self, patience: Patience) -> float:
        """Return when `look` is due even if nothing happens."""
        if self._waits:
            return NEVER if self.is_on else self._since + patience.interval
        return self._last + patience.gap if self.is_on else NEVER
