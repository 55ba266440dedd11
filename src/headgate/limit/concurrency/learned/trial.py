"""A trial: the throughput at two limits, and whether it follows the requests in flight."""

from math import log
from typing import Final, NamedTuple

from headgate.limit.concurrency.learned.measurement import Measurement

_FEWEST_REQUESTS: Final = 150
"""Requests of a trial, at least: with exponential times, a baseline of as many has an error of a twelfth.

75: no effect within chance but a limit of 1.18 instead of 1.34 times the knee after the capacity has fallen to a
quarter; 300: goodput 0.86 instead of 0.92 in the first minute of a slower service.
"""
_MOST_REQUESTS: Final = 600
"""Requests of a trial of a higher limit, at most, which delays the next one: they tell a sixth more from chance in
nineteen of twenty trials.

300: no effect within chance.
"""
_MOST_REQUESTS_BELOW: Final = 1_200
"""Requests of a trial of a lower limit, at most: a loss by chance raises the baseline.

With 600, the limit drifts by more than a tenth in four of 16 hours of overload and reaches 1.7 times the knee; with
1,200 in three of 32, and 1.5 times.
"""
_EVIDENCE: Final = 40.0
"""Requests of a trial times the square of the logarithm of the change.

The rates of two times n requests differ by chance by the square root of 2/n of their mean. So half of a change, where a
trial is decided, is 2.2 of these standard errors: 40 is 8 times the square of 2.2.
"""
_MIN_CHANGE: Final = 0.05
"""The relative change of the requests in flight from which on a trial has a result: a division by less is noise."""


class Trial(NamedTuple):
    """A change of the limit that is judged by what it does to the throughput."""

    limit: float
    """The limit before it."""
    before: Measurement
    requests: int
    """The number of requests needed to judge it."""

    def followed(self, after: Measurement) -> bool | None:
        """Return whether the throughput changed as the requests in flight did; None if these hardly changed."""
        change = log(after.in_flight / self.before.in_flight)
        if abs(change) <= _MIN_CHANGE:
            return None
        return log(max(after.busy, 1e-9) / max(self.before.busy, 1e-9)) / change > 0.5


def requests_needed(factor: float) -> int:
    """Return the number of requests that tell whether the throughput has changed by a factor."""
    most = _MOST_REQUESTS if factor > 1.0 else _MOST_REQUESTS_BELOW
    return int(min(most, max(_FEWEST_REQUESTS, _EVIDENCE / log(factor) ** 2)))
