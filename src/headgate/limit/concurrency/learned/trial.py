"""A trial: the throughput at two limits, and whether it follows the requests in flight."""

from math import log
from typing import Final, NamedTuple

from headgate.limit.concurrency.learned.measurement import Measurement

_FEWEST: Final = 150
"""Requests of a trial, at least: with exponential times, a baseline of as many has an error of a twelfth."""
_MOST: Final = 600
"""Requests of a trial, at most: they tell a sixth more from chance in nineteen of twenty trials."""
_MIN_CHANGE: Final = 0.05
"""The relative change of the requests in flight from which on a trial has a result."""


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
    return int(min(_MOST, max(_FEWEST, 40.0 / log(factor) ** 2)))
