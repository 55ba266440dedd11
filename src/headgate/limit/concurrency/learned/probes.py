"""When a higher limit is tried, and how much higher it is."""

from math import inf
from typing import Final

_FIRST_INTERVAL: Final = 2.0
"""Seconds until a higher limit is tried after one has led to more throughput.

1: no effect within chance, a limit 0.03 of the knee higher; 5: goodput 0.88 instead of 0.94 from 15 s after the
capacity has doubled, and 0.96 instead of 1.0 after a step.
"""
_LONGEST_INTERVAL: Final = 15.0
"""Seconds between trials of higher limits that have failed, at most; without them, a baseline that is too low keeps a
limit of 0.7 of the knee for ever.

5: the limit is 0.04 of the knee higher in overload; 60: no effect within minutes.
"""
_GROWTH: Final = 1.2
"""The factor of a higher limit that is tried. A limit of 1.2 times the knee must not put more than 1.5 in flight.

1.1: goodput 0.67 instead of 0.94 from 15 s after the capacity has doubled; 1.5: 0.99, but trials at 1.5 times the knee.
"""


class ProbeSchedule:
    """The schedule of trials of higher limits: each that fails doubles the time until the next one."""

    def __init__(self) -> None:
        self.interval = _FIRST_INTERVAL
        """Seconds."""
        self._due = 0.0
        self._threshold = inf  # below half of it the limit is doubled, as at the start

    @property
    def succeeds(self) -> bool:
        """Whether no trial has failed since the last one that succeeded."""
        return self.interval == _FIRST_INTERVAL

    def is_due(self, now: float) -> bool:
        """Return whether a higher limit may be tried."""
        return now >= self._due

    def higher(self, limit: float) -> float:
        """Return the limit to try instead of a lower one."""
        if 2.0 * limit <= self._threshold < inf:
            return 2.0 * limit
        return max(limit * _GROWTH, limit + 1.0)

    def succeeded(self) -> None:
        """Try the next one soon."""
        self.interval = _FIRST_INTERVAL

    def failed(self, limit: float, now: float) -> None:
        """Wait for longer than the last time; up to `limit`, limits are known to be good."""
        self.pause(limit, now)
        self.interval = min(_LONGEST_INTERVAL, 2.0 * self.interval)

    def pause(self, limit: float, now: float) -> None:
        """Wait for the present interval."""
        self._threshold, self._due = limit, now + self.interval

    def return_to(self, limit: float) -> None:
        """Expect that a limit will do again, once what has lowered it is over."""
        self._threshold, self.interval = limit, _FIRST_INTERVAL
