"""The start of a learned limit: each response permits one request more, as long as the throughput follows."""

from math import sqrt
from typing import Final

from headgate.limit.concurrency.learned.measurement import Measurement

_FIRST_LOOK: Final = 60
"""Requests of a round at the start, at least."""
_FIRST_GROWTH: Final = 1.5
"""The growth of the requests in flight from which on the throughputs of two rounds at the start are compared."""


class Growth:
    """The rounds of the start: in each, as many requests end as the limit was when it began."""

    def __init__(self) -> None:
        self._first: Measurement | None = None  # with which later rounds are compared

    @staticmethod
    def is_round(measurement: Measurement, limit: int, baseline: float) -> bool:
        """Return whether a measurement that began at a limit is a round: long enough for a rate."""
        return measurement.requests >= max(limit, _FIRST_LOOK) and measurement.seconds >= 2.0 * baseline

    def follows(self, measurement: Measurement) -> bool:
        """Return whether the throughput of a round follows the limit.

        It is compared with that of an earlier one only if far more requests were in flight: otherwise it is the demand
        that did not rise.
        """
        first = self._first
        if first is None:
            self._first = measurement
            return True
        growth = measurement.in_flight / first.in_flight
        if growth < _FIRST_GROWTH:
            return True
        self._first = measurement
        return measurement.rate > sqrt(growth) * first.rate
