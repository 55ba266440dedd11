"""When a URL whose fetch failed may be asked again: the throttle's backoff, and the server's Retry-After.

This file knows nothing of transports. Instants are seconds since 1970; the policy is the throttle's, but without
failures that are ignored: a failed fetch of a bundle may have been a gigabyte.
"""

import math
from typing import Final

from headgate.errors import FetchError
from headgate.http.retry_after import retry_after as parse_retry_after
from headgate.release import ASAP
from headgate.throttle import Policy

__all__ = ["FetchBackoff"]

_POLICY: Final = Policy(num_errors_to_ignore=0)


class FetchBackoff:
    """What is remembered of one URL: how often it failed, with what, and for how long it is left alone."""

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = ASAP
        self._pause = 0.0
        self._why = ""

    def check(self, *, now: float) -> None:
        """Raise `FetchError`, which repeats the last failure, while the URL must not be asked."""
        left = self._left(now)
        if left > 0:
            when = f"it may be fetched again in {left:.1f} s" if left < math.inf else "it is not fetched again"
            raise FetchError(f"{self._why}; {when}")

    def failed(self, why: str, retry_after: str, *, sent: float, now: float, draw: float) -> None:
        """Remember a failure of a request that was `sent` then, and the Retry-After of its answer, empty without one.

        `draw` is from [0, 1), for the jitter. Requests in parallel are one failure.
        """
        if sent >= self._failed_at:
            self._failures += 1
        wanted = parse_retry_after(retry_after, now=now) - now
        self._pause = max(_POLICY.delay(self._failures, draw), wanted, self._left(now))
        self._failed_at = now
        self._why = why

    def succeeded(self) -> None:
        """Take note that it could be fetched."""
        self._failures = max(0, self._failures - 1)

    def _left(self, now: float) -> float:
        """Give the seconds until it may be fetched."""
        # After a clock is set back the pause begins anew, so that it is never longer than it was meant to be.
        self._failed_at = min(self._failed_at, now)
        return self._failed_at + self._pause - now
