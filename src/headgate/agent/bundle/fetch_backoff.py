"""When a URL may be fetched again after a failure: the throttle's backoff, and the server's Retry-After.

Instants are seconds since 1970. The policy is the throttle's without ignored failures: a fetch that failed may have
transferred a gigabyte.
"""

import math
from typing import Final

from headgate.errors import FetchError
from headgate.http.retry_after import retry_after as parse_retry_after
from headgate.release import ASAP
from headgate.throttle import Policy

_POLICY: Final = Policy(num_errors_to_ignore=0)


class FetchBackoff:
    """The state of one URL: how often fetching it failed, with which error, and how long it is held."""

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = ASAP
        self._pause = 0.0
        self._why = ""

    def check(self, *, now: float) -> None:
        """Raise `FetchError`, with the last failure, while the URL is held."""
        left = self._left(now)
        if left > 0:
            when = f"it may be fetched again in {left:.1f} s" if left < math.inf else "it is not fetched again"
            raise FetchError(f"{self._why}; {when}")

    def failed(self, why: str, retry_after: str, *, sent: float, now: float, draw: float) -> None:
        """Record the failure of a request `sent` at that time, and its response's Retry-After, empty without one.

        `draw` is from [0, 1), for the jitter. Parallel requests count as one failure.
        """
        if sent >= self._failed_at:
            self._failures += 1
        wanted = parse_retry_after(retry_after, now=now) - now
        self._pause = max(_POLICY.delay(self._failures, draw), wanted, self._left(now))
        self._failed_at = now
        self._why = why

    def succeeded(self) -> None:
        """Record a successful fetch."""
        self._failures = max(0, self._failures - 1)

    def _left(self, now: float) -> float:
        """Return the seconds until it may be fetched."""
        # If the clock is set back, the pause begins anew, so it is never longer than intended.
        self._failed_at = min(self._failed_at, now)
        return self._failed_at + self._pause - now
