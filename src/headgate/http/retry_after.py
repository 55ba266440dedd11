"""`Retry-After` (RFC 9110, section 10.2.3)."""

from headgate.http.date import parse_http_date
from headgate.release import ASAP, advance

__all__ = ["retry_after"]


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
