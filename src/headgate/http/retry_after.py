"""`Retry-After` (RFC 9110, section 10.2.3): a release time when received, whole seconds when sent."""

import math
from typing import Final

from headgate.http.date import parse_http_date
from headgate.http.fields import MAX_INTEGER
from headgate.release import ASAP, advance

_ROUNDING_ERROR: Final = 1e-6
"""Seconds that are ignored when rounding up: more than the error of a float near 1.7e9, whose steps are 2.4e-7."""


def retry_after(value: str, *, now: float) -> float:
    """Return the release time of a `Retry-After` received at `now`; `ASAP` for a past date or a malformed value.

    Seconds are ASCII digits; more than a float can hold are `NEVER`. A date, in any of its three forms, is compared
    with the local clock.
    """
    text = value.strip("\t ")
    if text.isascii() and text.isdigit():
        return advance(now, float(text))
    date = parse_http_date(text.encode("latin-1", "replace"), now=now)
    return ASAP if date is None or date <= now else float(date)


def whole_seconds(seconds: float) -> int:
    """Round `seconds` up to a whole number from 0 to `MAX_INTEGER`, which also stands for infinity and NaN.

    For `Retry-After` and the RateLimit fields.
    """
    if not seconds < MAX_INTEGER:
        return MAX_INTEGER
    return math.ceil(max(0.0, seconds - _ROUNDING_ERROR))
