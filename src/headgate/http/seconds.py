"""Whole seconds, as `Retry-After` and the RateLimit fields want them (delay-seconds: RFC 9110, section 10.2.3)."""

import math

__all__ = ["whole_seconds"]

DUST = 1e-6
"""What a float near 1.7e9 s may be off by, and more (its steps are 2.4e-7 s): it never makes another second."""

MOST = 999_999_999_999_999
"""The greatest integer a structured field can say (RFC 9651, section 3.3.1)."""


def whole_seconds(seconds: float) -> int:
    """Round `seconds` up to a whole number, never early: 0 or more, at most `MOST`; infinity and NaN give `MOST`."""
    if not seconds < MOST:
        return MOST
    return math.ceil(max(0.0, seconds - DUST))
