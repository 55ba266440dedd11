"""The start of a learned limit: each response permits one request more, as long as the throughput follows."""

from math import sqrt
from typing import Final

from headgate.limit.concurrency.learned.measurement import Measurement

_FEWEST_REQUESTS: Final = 60
"""Requests of a round, at least: the rates of two such rounds differ by 0.18 of their mean (one standard error).

Without it, one of eight starts at 0.9 of the capacity of 64 places halves the limit too early, and refuses 0.39 of the
capacity in 20 s; with 30, 60 and 100 none does. With 100, 200 places refuse 0.09 instead of 0.02 of it in 8 s.
"""
_COMPARED: Final = 1.5
"""The growth of the requests in flight from which on the throughputs of two rounds are compared.

With 1.25 the same rounds are compared. With 2.0 a later one is, which is judged wrongly less often: of eight starts at
0.7 of the capacity of 200 places with very unequal times (one of ten takes eleven times as long), five refuse 0.47 of
the capacity in 12 s, with 2.0 none does. But the first limit that is found too high is twice as high then: 8 instead of
4 times the knee of 20 places, 40 instead of 20 times that of four.
"""


class Growth:
    """The rounds of the start: in each, as many requests end as the limit was when it began."""

    def __init__(self) -> None:
        self._first: Measurement | None = None  # with which later rounds are compared

    @staticmethod
    def is_round(measurement: Measurement, limit: int, baseline: float) -> bool:
        """Return whether a measurement that began at a limit is a round: long enough for a rate."""
        return measurement.requests >= max(limit, _FEWEST_REQUESTS) and measurement.seconds >= 2.0 * baseline

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
        if growth < _COMPARED:
            return True
        self._first = measurement
        return measurement.rate > sqrt(growth) * first.rate
