"""Learns a concurrency limit: additive increase and multiplicative decrease (AIMD) with a target for the mean latency.

This is the congestion control of TCP (RFC 5681) with a latency above the target in place of a lost packet, once in a
round of as many requests as the limit permits. It begins with slow start: the limit doubles until the first decrease.
`docs/decisions/concurrency-limit.md` compares it with other published laws.
"""

from typing import Final

FIRST_LIMIT: Final = 4.0
"""Requests in flight before anything is known; slow start makes it 128 in five rounds."""
MIN_REQUESTS: Final = 10
"""Requests of a round, at least: the mean of fewer says little."""
DECREASE: Final = 0.9
"""The factor of a decrease. RFC 5681 has 0.5, which would leave an origin idle; 0.9 is that of Netflix's AIMD limit."""
_CLIP: Final = 4.0
"""A latency counts as this many targets at most, so that a few timeouts do not lower the limit."""


class AimdLimit:
    """A limit of the requests in flight that keeps the mean latency of responses at `target` seconds or below.

    `ceiling` is the largest limit; the least one is 1. If the mean is above the target with one request in flight, no
    limit can help: the origin is slow without load. Then twice this mean is the target until a mean is below the
    configured one. If far more requests are in flight than the limit permits, nothing enforces it: then it is the
    number that Little's law gives for the target at this throughput.
    """

    def __init__(self, target: float, ceiling: int) -> None:
        self.limit = FIRST_LIMIT
        self.latency = 0.0
        """The mean latency of the last round."""
        self._slow_start = True
        self._requests = self._most = 0
        self._seconds = 0.0
        self.reconfigure(target, ceiling)

    def reconfigure(self, target: float, ceiling: int) -> None:
        """Put other parameters in force; the limit stays if it may."""
        self._configured = self.target = target
        self._ceiling = float(ceiling)
        self.limit = min(self.limit, self._ceiling)

    def responded(self, latency: float, in_flight: int) -> bool:
        """Take a latency, and how many requests are in flight with it; returns whether the limit has changed."""
        self._requests += 1
        self._seconds += min(latency, _CLIP * self.target)
        if in_flight > self._most:
            self._most = in_flight
        if self._requests < MIN_REQUESTS or self._requests < self.limit:
            return False
        before, self.latency = self.limit, self._seconds / self._requests
        self._end_round(self.latency)
        self._requests = self._most = 0
        self._seconds = 0.0
        return self.limit != before

    def _end_round(self, mean: float) -> None:
        if mean <= self._configured:
            self.target = self._configured
        if mean <= self.target:
            if 2 * self._most >= self.limit:  # a limit that is not used says nothing
                self.limit = min(self._ceiling, 2.0 * self.limit if self._slow_start else self.limit + 1.0)
            return
        self._slow_start = self._most <= 1
        if self._slow_start:
            self.target = 2.0 * mean
        needed = self._most * self.target / mean if self._most > 2.0 * self.limit else DECREASE * self.limit
        self.limit = max(1.0, min(self._ceiling, needed))
