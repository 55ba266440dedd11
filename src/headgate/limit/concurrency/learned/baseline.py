"""The latency that the responses of one domain have while an origin is not loaded."""

from math import inf
from typing import Final

MEMORY: Final = 1_000
"""Responses after which an earlier one has lost most of its weight."""
_KNOWN: Final = 500
"""Responses without a load after which a baseline needs no proof by a trial."""
_ESTIMATED: Final = 100
"""Those after which it tells a queue."""
_KNOWN_TIME: Final = 10.0
"""The time in which they end, at least, in times of the latency: those that end first are the short ones."""
_RECENT: Final = 200
_FIRST: Final = 200
"""The first responses, which count loaded or not: the earliest are those of short requests."""
_MUCH_LOWER: Final = 0.6


class Baseline:
    """The mean latency of a domain without a queue at the origin.

    It follows requests that end while the origin has few of them. A limiter replaces it by what it has found out, and
    it falls when recent latencies are far lower: a queue makes latencies longer, never shorter.
    """

    __slots__ = ("_elapsed", "_falls", "_first", "_recent", "_recent_weight", "_weight", "mean", "unloaded")

    def __init__(self) -> None:
        self.mean = 0.0
        """Seconds; 0 before the first response."""
        self.unloaded = 0
        """The number of responses while the limit was not reached."""
        self._elapsed = 0.0
        self._weight = 0
        self._first = _FIRST
        self._recent = 0.0
        self._recent_weight = 0
        self._falls = False

    def add(self, seconds: float, count: int, unloaded_seconds: float, unloaded: int, elapsed: float) -> None:
        """Take the sum of `count` latencies, and that of the `unloaded` ones, measured with few requests in flight.

        `elapsed` is the time in which they ended, if the limit was not reached meanwhile; otherwise 0.
        """
        self.unloaded += count if elapsed else unloaded
        self._elapsed += elapsed
        mean = seconds / count
        if self._first > 0 or (elapsed and not self.is_known):
            self._first -= count
            self._weight = min(_FIRST, self._weight + count)
            self.mean += (mean - self.mean) * min(1.0, count / self._weight)
        elif unloaded:
            self._weight = min(MEMORY, self._weight + unloaded)
            self.mean += (unloaded_seconds / unloaded - self.mean) * min(1.0, unloaded / self._weight)
        self._recent_weight = min(_RECENT, self._recent_weight + count)
        self._recent += (mean - self._recent) * min(1.0, count / self._recent_weight)
        self._fall()

    @property
    def is_known(self) -> bool:
        """Whether it needs no proof by a trial."""
        return self.unloaded >= _KNOWN and self._elapsed >= _KNOWN_TIME * self.mean

    @property
    def is_estimated(self) -> bool:
        """Whether it tells a queue: it is not only that of the first responses, which are the short ones."""
        return self.unloaded >= _ESTIMATED and self._elapsed >= _KNOWN_TIME * self.mean

    def replace(self, mean: float, count: int, *, known: bool) -> None:
        """Set the baseline to the mean of `count` responses, of which it may be known that they met no queue."""
        self.mean, self._weight, self.unloaded = mean, min(MEMORY, count), _KNOWN if known else 0
        self._elapsed = inf if known else 0.0
        self._first = 0

    def _fall(self) -> None:
        """Follow latencies that are far below the baseline, until they rise again."""
        if self._recent_weight == _RECENT and self._recent < _MUCH_LOWER * self.mean:
            self._falls = True
        if self._falls and self._recent < self.mean:
            self.mean, self._weight, self.unloaded = self._recent, _RECENT, 0
            self._elapsed = 0.0
        else:
            self._falls = False
