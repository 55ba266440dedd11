"""The start of a learned limit: each response permits one request more, as long as the throughput follows."""

from math import inf, sqrt
from typing import Final

from headgate.limit.concurrency.learned.measurement import Measurement

_FEWEST_REQUESTS: Final = 60
"""Requests of a round, at least: the rates of two such rounds differ by 0.18 of their mean (one standard error).

Without it, one of eight starts at 0.9 of the capacity of 64 places halves the limit too early, and refuses 0.39 of the
capacity in 20 s; with 30, 60 and 100 none does. With 100, 200 places refuse 0.09 instead of 0.02 of it in 8 s.
"""
_COMPARED: Final = 1.5
"""The growth of the requests in flight from which on the throughputs of two rounds are compared.

With 1.25 the same rounds are compared. With 2.0, 64 clients of eight places are never limited, and a start in overload
has 160 instead of 80 requests in flight at 4 places.
"""
_SLOWER: Final = 1.25
"""A response is slow if it takes longer than this multiple of the mean latency of the round before.

With 1.1, one of 16 starts at 0.9 of the capacity of 64 places with equal times refuses 0.06 of it, with 1.25 0.01.
"""
_MOST: Final = 0.5
"""The share of slow responses above which they wait in a queue: it delays all of them.

With exponential times, 0.29 of the responses are slow without a queue. With 0.4, one of 16 starts of 64 clients at 100
places halves the limit; with 0.6, some starts in overload have more than twice as many requests in flight.
"""


class Growth:
    """The rounds of the start: in each, as many requests end as the limit was when it began."""

    def __init__(self) -> None:
        self._first: Measurement | None = None  # with which later rounds are compared

    @staticmethod
    def is_round(measurement: Measurement, limit: int, baseline: float) -> bool:
        """Return whether a measurement that began at a limit is a round: long enough for a rate."""
        return measurement.requests >= max(limit, _FEWEST_REQUESTS) and measurement.seconds >= 2.0 * baseline

    @property
    def has_begun(self) -> bool:
        """Whether a first round was measured."""
        return self._first is not None

    @property
    def slow_latency(self) -> float:
        """Seconds above which a response is slower than those of the first round; infinite without one."""
        return inf if self._first is None else _SLOWER * self._first.latency

    def follows(self, measurement: Measurement) -> bool:
        """Return whether the throughput of a round follows the limit.

        It is compared with that of an earlier one only if far more requests were in flight: otherwise it is the demand
        that did not rise. If it has not risen, the limit is too high only if most responses are slower, too: a queue
        delays all of them, but of requests that start together the short ones end first, and the rate falls then.
        """
        first = self._first
        if first is None:
            self._first = measurement
            return True
        growth = measurement.in_flight / first.in_flight
        if growth < _COMPARED:
            return True
        self._first = measurement
        return measurement.rate > sqrt(growth) * first.rate or measurement.slow <= _MOST * measurement.requests
