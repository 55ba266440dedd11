"""Measures for how long requests are in flight, and so how many of them an origin completes.

By Little's law, the mean time of a request is the integral of the number in flight divided by the number of those that
ended, and a full origin completes the limit divided by this time. This needs a sum and a count for each request, and
holds for any distribution of their times.
"""

import math
from typing import Final

SAMPLE: Final = 100
"""Requests after which the time is measured: with exponential times, a mean of them has an error of a tenth.

30 and 300 tried: goodput and waits in overload are the same within a tenth.
"""
_SMALL_SAMPLE: Final = 20
"""Requests that are enough after a second in which requests wait. Chosen; 5 and 80 tried: no clear effect."""
_MAX_SECONDS: Final = 10.0
"""Seconds after which any number of requests is enough while requests wait. Chosen; 3 and 30 tried: no clear effect."""


class RequestDuration:
    """How long a request is in flight; `assumed` is its value before the first request has ended."""

    def __init__(self, assumed: float) -> None:
        self.smoothed = assumed
        """Seconds of a request, smoothed: a single sample of slow requests changes it by half at most."""
        self.recent = assumed
        """Seconds of a request in the last sample; not less than `smoothed` if that was of few requests."""
        self.began = -math.inf
        """When the sample began that is being measured; unknown for the first one."""
        self._is_measured = False

    def is_due(self, ended: int, *, now: float) -> bool:
        """Return whether a sample may end while requests wait."""
        if self.began == -math.inf:
            self.began = now
        elapsed = now - self.began
        return elapsed >= 1.0 and (ended >= _SMALL_SAMPLE or elapsed >= _MAX_SECONDS)

    def measure(self, area: float, ended: int, *, now: float) -> None:
        """Take the integral of the number in flight over a sample that ends now, and how many requests ended in it."""
        self.began = now
        mean = max(area / max(ended, 1), 1e-6)
        if ended and not self._is_measured:
            self.smoothed, self._is_measured = mean, True
        elif ended:
            self.smoothed += (mean - self.smoothed) * ended / (ended + SAMPLE)
        # The sample that ends when requests wait after a pause has few or none.
        self.recent = mean if ended >= _SMALL_SAMPLE else max(mean, self.smoothed)
