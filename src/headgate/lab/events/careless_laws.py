"""The concurrency limit without one of its guards: controls that show what the guard is for."""

from collections.abc import Sequence

from headgate.lab.events.concurrency_law import ConcurrencyLaw
from headgate.lab.events.laws import Arriving, Decision


class LimitsStreams(ConcurrencyLaw):
    """Gives places to streams, and learns from their durations."""

    def arrived(self, request: Arriving, *, now: float) -> Sequence[Decision]:
        """Take a stream for a request."""
        request.stream = False
        return super().arrived(request, now=now)
