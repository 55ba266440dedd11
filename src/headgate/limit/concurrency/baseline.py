"""The latency that the responses of one domain have while an origin is not loaded."""

from collections.abc import Sequence
from math import fsum
from typing import Final

MEMORY: Final = 1_000
"""Responses after which an earlier one has lost most of its weight."""
_KNOWN: Final = 500
"""Responses without a load after which a baseline needs no proof by a trial."""
_RECENT: Final = 200
_FIRST: Final = 200
"""The first responses, which count loaded or not: the earliest are those of short requests."""
_MUCH_LOWER: Final = 0.6


class Baseline:
    """The mean latency of a domain without a queue at the origin.

    It follows requests that end while the origin has few of them. A limiter replaces it by what it has found out, and
    it falls when recent latencies are far lower: a queue makes latencies longer, never shorter.
    """

    __slots__ = ("_falls", "_first", "_recent", "_recent_weight", "_weight", "mean", "unloaded")

    def __init__(self) -> None:
        self.mean = 0.0
        """Seconds; 0 before the first response."""
        self.unloaded = 0
        """The number of responses while the limit was not reached."""
        self._weight = 0
        self._first = _FIRST
        self._recent = 0.0
        self._recent_weight = 0
        self._falls = False

    def add(self, latencies: Sequence[float], unloaded: Sequence[float], *, full: bool) -> None:
        """Take the latencies of responses, and those of them that were measured while the origin had few requests.

        `full` says whether the limit was reached meanwhile.
        """
        self.unloaded += len(unloaded) if full else len(latencies)
        mean, count = fsum(latencies) / len(latencies), len(latencies)
        if self._first > 0:
            self._first -= count
            self._weight += count
            self.mean += (mean - self.mean) * count / self._weight
        elif unloaded:
            self._weight = min(MEMORY, self._weight + len(unloaded))
            self.mean += (fsum(unloaded) / len(unloaded) - self.mean) * min(1.0, len(unloaded) / self._weight)
        self._recent_weight = min(_RECENT, self._recent_weight + count)
        self._recent += (mean - self._recent) * min(1.0, count / self._recent_weight)
        self._fall()

    @property
    def is_known(self) -> bool:
        """Whether it needs no proof by a trial."""
        return self.unloaded >= _KNOWN

    def replace(self, mean: float, count: int, *, known: bool) -> None:
        """Set the baseline to the mean of `count` responses, of which it may be known that they met no queue."""
        self.mean, self._weight, self.unloaded = mean, min(MEMORY, count), _KNOWN if known else 0
        self._first = 0

    def _fall(self) -> None:
        """Follow latencies that are far below the baseline, until they rise again."""
        if self._recent_weight == _RECENT and self._recent < _MUCH_LOWER * self.mean:
            self._falls = True
        if self._falls and self._recent < self.mean:
            self.mean, self._weight, self.unloaded = self._recent, _RECENT, 0
        else:
            self._falls = False
