"""The latency that the responses of one domain have while an origin is not loaded."""

from math import inf
from typing import Final

MEMORY: Final = 1_000
"""Responses after which an earlier one has lost most of its weight.

Chosen; 300 and 3,000 tried: no effect within chance after a step and when the service becomes slower or faster.
"""
_KNOWN: Final = 500
"""Responses without a load after which a baseline needs no proof by a trial.

Chosen; 100, 250 and 1,000 tried: no effect within chance on steps, starts and a slower service.
"""
_ESTIMATED: Final = 100
"""Those after which it tells a queue.

50 has no effect; with 500, a step to three times the capacity 2.5 s after the start has 0.92 instead of 1.0 of the
capacity in its first 5 s.
"""
_KNOWN_TIME: Final = 10.0
"""The time in which they end, at least, in times of the latency: those that end first are the short ones.

3 has no effect; with 1, a start of 500 places refuses 0.27 instead of 0.23 of their capacity in 15 s; with 30, the
step of `_ESTIMATED` has 0.92 instead of 1.0.
"""
_FEW: Final = 200
"""The first responses, which count loaded or not, as the earliest are those of short requests; and the recent ones.

Chosen; half and twice as many recent ones have no effect within chance, nor have 50 to 400 first ones in steps. With
500 first ones, a start of 500 places refuses 0.36 instead of 0.23 of their capacity in 15 s.
"""
_MUCH_LOWER: Final = 0.6
"""Recent latencies below this share of the baseline are a faster service.

0.4 and 0.8 have no effect within chance. Without it, the baseline is five times too long a minute after the service has
become five times as fast in overload, and the limit 1.4 to 1.6 instead of 1.0 to 1.2 times the knee.
"""
_REST: Final = 3.0
"""Times of the latency since the limit was reached, before responses count: until then they may have waited in a queue.

With 0, bursts of 2 and 5 s make the limit rise to 2.5 to 3.9 times the knee in an hour, and a thousand clients that
come at once to a start have 0.68 of the capacity at the worst of 20; with 3, 1.0 to 1.3 times, and 0.78.
"""


class Baseline:
    """The mean latency of a domain without a queue at the origin.

    It follows requests that end while the origin has few of them, some time after the limit was reached. A limiter
    replaces it by what it has found out, and it falls when recent latencies are far lower: a queue makes latencies
    longer, never shorter.
    """

    __slots__ = ("_elapsed", "_falls", "_first", "_recent", "_recent_weight", "_rested", "_weight", "mean", "unloaded")

    def __init__(self) -> None:
        self.mean = 0.0
        """Seconds; 0 before the first response."""
        self.unloaded = 0
        """The number of responses while the limit was not reached."""
        self._elapsed = 0.0
        self._rested = inf  # seconds since the limit was reached
        self._weight = 0
        self._first = _FEW
        self._recent = 0.0
        self._recent_weight = 0
        self._falls = False

    def add(self, seconds: float, count: int, unloaded_seconds: float, unloaded: int, elapsed: float) -> None:
        """Take the sum of `count` latencies, and that of the `unloaded` ones, measured with few requests in flight.

        `elapsed` is the time in which they ended, if the limit was not reached meanwhile; otherwise 0.
        """
        is_rested = elapsed > 0.0 and self._rested >= _REST * self.mean
        if elapsed:
            self._rested += elapsed
            self.unloaded += count
        else:
            self._rested = 0.0
        if is_rested:
            self._elapsed += elapsed
        mean = seconds / count
        if self._first > 0 or (elapsed and not self.is_known):
            self._first -= count
            self._weight = min(MEMORY if self.is_estimated else _FEW, self._weight + count)
            self.mean += (mean - self.mean) * min(1.0, count / self._weight)
        elif unloaded and is_rested:
            self._weight = min(MEMORY, self._weight + unloaded)
            self.mean += (unloaded_seconds / unloaded - self.mean) * min(1.0, unloaded / self._weight)
        self._recent_weight = min(_FEW, self._recent_weight + count)
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
        """Set the baseline to the mean of `count` responses, of which it may be known that they met no queue.

        A known baseline rises to the mean of both.
        """
        if known and self.is_known and mean > self.mean:  # a trial that is judged wrongly raises it only half as far
            mean = (mean + self.mean) / 2
        self.mean, self._weight, self.unloaded = mean, min(MEMORY, count), _KNOWN if known else 0
        self._elapsed = inf if known else 0.0
        self._first = 0

    def _fall(self) -> None:
        """Follow latencies that are far below the baseline, until they rise again."""
        if self._recent_weight == _FEW and self._recent < _MUCH_LOWER * self.mean:
            self._falls = True
        if self._falls and self._recent < self.mean:
            self.mean, self._weight, self.unloaded = self._recent, _FEW, 0
            self._elapsed = 0.0
        else:
            self._falls = False
