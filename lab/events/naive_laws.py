"""Laws without the guards of the concurrency limit: those that others use, and the limit without one of its guards."""

from collections.abc import Sequence
from math import sqrt

from lab.chance import Draw
from lab.events.concurrency_law import ConcurrencyLaw
from lab.events.laws import Arriving, Decision, FixedLimit, Outcome

_MAX: float = 1_000.0


class Aimd(FixedLimit):
    """Raises the limit by one in each round of answers, and lowers it by a tenth after a timeout, or a slow answer."""

    class Settings(FixedLimit.Settings, frozen=True, kw_only=True):
        """Those of the fixed limit, with which it begins."""

        slow: float = 1.0
        """Seconds from which on an answer is slow."""

    def __init__(self, settings: Settings, draw: Draw) -> None:
        super().__init__(settings, draw)
        self._slow = settings.slow
        self._lowered = 0.0

    def completed(self, request: Arriving, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:
        """Raise or lower the limit; lower it at most once in the time of an answer."""
        if latency < self._slow and outcome is Outcome.ANSWERED:
            self.limit = min(_MAX, self.limit + 1.0 / self.limit)
        elif now - self._lowered > latency:
            self.limit, self._lowered = max(1.0, 0.9 * self.limit), now
        return super().completed(request, latency, outcome, now=now)


class Gradient(FixedLimit):
    """Multiplies the limit by the ratio of a long-term and a short-term latency, and adds its square root.

    The long-term latency is a mean of all samples, those under overload and those of streams and timeouts included.
    """

    def __init__(self, settings: FixedLimit.Settings, draw: Draw) -> None:
        super().__init__(settings, draw)
        self._latencies: list[float] = []
        self._long = 0.0

    def completed(self, request: Arriving, latency: float, outcome: Outcome, *, now: float) -> Sequence[Decision]:
        """Change the limit after each ten requests."""
        self._latencies.append(latency)
        if len(self._latencies) == 10:
            short = sum(self._latencies) / 10
            self._latencies.clear()
            self._long += (short - self._long) / 600 if self._long else short
            gradient = max(0.5, min(1.0, 1.5 * self._long / short))
            self.limit += 0.2 * (gradient * self.limit + sqrt(self.limit) - self.limit)
            self.limit = max(1.0, min(_MAX, self.limit))
        return super().completed(request, latency, outcome, now=now)


class LimitsStreams(ConcurrencyLaw):
    """The concurrency limit that gives places to streams, and learns from their durations."""

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Take a stream for a request."""
        request.stream = False
        return super().arrived(request, now=now)
