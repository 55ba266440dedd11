"""Whole seconds, for `Retry-After` and the RateLimit fields (delay-seconds: RFC 9110, section 10.2.3)."""

import math

__all__ = ["whole_seconds"]

ROUNDING_ERROR = 1e-6
"""Seconds that are ignored when rounding up: more than the error of a float near 1.7e9, whose steps are 2.4e-7."""

MAX_INTEGER = 999_999_999_999_999
"""The greatest Integer of a structured field (RFC 9651, section 3.3.1)."""


def whole_seconds(seconds: float) -> int:
    """Round `seconds` up to a whole number from 0 to `MAX_INTEGER`, which infinity and NaN become too."""
    if not seconds < MAX_INTEGER:
        return MAX_INTEGER
    return math.ceil(max(0.0, seconds - ROUNDING_ERROR))
