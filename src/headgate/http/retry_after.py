"""`Retry-After`, understood here and nowhere else (RFC 9110, section 10.2.3)."""

from headgate.http.date import http_date
from headgate.release import ASAP, advance

__all__ = ["retry_after"]


def retry_after(value: str, *, now: float) -> float:
    """Give the release time that a `Retry-After` asks for, received at `now`; `ASAP` where it asks for nothing.

    Seconds are ASCII digits, however many: more than a float can hold are `NEVER`. A date, in any of its three forms,
    is taken by this side's clock, and one that is past, like a value that is neither, asks for nothing.
    """
    text = value.strip("\t ")
    if text.isascii() and text.isdigit():
        return advance(now, float(text))
    date = http_date(text.encode("latin-1", "replace"), now=now)
    return ASAP if date is None or date <= now else float(date)
