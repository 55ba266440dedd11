"""The capacity of an origin, learned from what it completes while it is loaded."""

from collections import deque
from typing import Final

_PERIOD: Final = 10.0
"""Seconds of load of which a rate is the mean, at least."""
_MIN_REQUESTS: Final = 50
"""Requests of which a rate is the mean, at least: with exponential times, it has an error of a seventh."""
_PERIODS: Final = 6
"""Periods of which the highest rate is taken: those of the last minute of load."""


class LearnedCapacity:
    """The highest completion rate of the last minute of load.

    Only time in which the requests in flight are near their limit counts, so idle periods neither raise nor lower it.
    """

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=_PERIODS)
        self._completed = 0
        self._seconds = 0.0

    @property
    def rate(self) -> float:
        """Requests per second; 0 if not known."""
        return max(self._rates, default=0.0)

    def add(self, completed: int, seconds: float) -> None:
        """Take the requests that were answered in an interval in which the origin was loaded."""
        self._completed += completed
        self._seconds += seconds
        if self._seconds >= _PERIOD and self._completed >= _MIN_REQUESTS:
            self._rates.append(self._completed / self._seconds)
            self._completed, self._seconds = 0, 0.0
