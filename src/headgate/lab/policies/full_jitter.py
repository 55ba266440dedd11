"""Exponential backoff with full jitter: a failed request is sent again after a random part of a growing interval.

M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015:
`sleep = random_between(0, min(cap, base * 2 ** attempt))`, and attempts count from 0. The cap of 20 s is that of the
standard retry mode of the AWS SDKs.
"""

from typing import Final

from headgate.lab.policies import Policy

BASE: Final = 1.0
"""Seconds: the longest pause after the first failure."""
CAP: Final = 20.0
"""Seconds: the longest pause."""
_MAX_EXPONENT: Final = 32
"""The power is not computed beyond; the cap applies long before."""


def full_jitter(attempt: int, draw: float, *, base: float = BASE, cap: float = CAP) -> float:
    """Return the seconds before the attempt that follows attempt number `attempt`, which counts from 0, and failed."""
    return draw * min(cap, base * 2.0 ** min(attempt, _MAX_EXPONENT))


class FullJitter(Policy):
    """Retries without a limit to their number; the interval grows with each failure in a row."""

    def pause(self, failures: int, *, now: float) -> float:  # noqa: ARG002 - a `Policy`
        """Return the pause by the published formula."""
        return full_jitter(failures - 1, self.draw())
