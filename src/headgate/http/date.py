"""HTTP-dates (RFC 9110, section 5.6.7), and `Retry-After` (section 10.2.3), which is a date or a number of seconds.

An HTTP-date has three forms, all of them UTC, to the second. `Retry-After` is a release time when received, and whole
seconds when sent.
"""

import calendar
import math
import re
from typing import Final

from headgate.http.fields import MAX_INTEGER
from headgate.release import ASAP, advance

_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_DAYS = (b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday")
_DAY = b"(?:" + b"|".join(name[:3] for name in _DAYS) + b")"
_WHOLE_DAY = b"(?:" + b"|".join(_DAYS) + b")"
_TIME = rb"(?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9]):(?P<second>[0-6][0-9])"
# 9110 5.6.7: the form to send, and two older ones that recipients must read. Names are case-sensitive; the day of the
# week is not compared with the date.
_DATES = [
    _DAY + rb", (?P<day>[0-3][0-9]) " + _MONTH + rb" (?P<year>[0-9]{4}) " + _TIME + rb" GMT",
    _WHOLE_DAY + rb", (?P<day>[0-3][0-9])-" + _MONTH + rb"-(?P<year>[0-9]{2}) " + _TIME + rb" GMT",
    _DAY + b" " + _MONTH + rb" (?P<day>[ 0-3][0-9]) " + _TIME + rb" (?P<year>[0-9]{4})",
]
"""They are compiled when the first date is read, since an agent imports them and may never read one."""


_YEAR: Final = 365.2425 * 86400
_MAX_NOW: Final = 2e11
"""Seconds since 1970: later, a year has more than four digits."""


def parse_http_date(value: bytes, *, now: float | None = None) -> int | None:
    """Read an HTTP-date as seconds since 1970; None for a malformed date, and for one before 1970.

    `now`, in seconds since 1970, decides the century of a year of two digits; without it the year is 1970 to 2069.
    """
    for pattern in _DATES:
        match = re.fullmatch(pattern, value)
        if match is None:
            continue
        if len(match["year"]) == 4:
            return _seconds(match, int(match["year"]))
        return _of_two_digits(match, int(match["year"]), now)
    return None


def _of_two_digits(match: re.Match[bytes], digits: int, now: float | None) -> int | None:
    """Return the next date with these digits, or the one before if that is more than 50 years ahead (9110 5.6.7).

    A year is 365.2425 days here, so exactly 50 calendar years may be up to a day more or less.
    """
    if now is None:
        return _seconds(match, digits + (2000 if digits < 70 else 1900))
    furthest = min(max(now, 0.0), _MAX_NOW) + 50 * _YEAR
    latest = 1971 + int(furthest // _YEAR)
    year = latest - (latest - digits) % 100
    seconds = _seconds(match, year)
    return seconds if seconds is not None and seconds <= furthest else _seconds(match, year - 100)


def _seconds(match: re.Match[bytes], year: int) -> int | None:
    month, day = _MONTHS.index(match["month"]) + 1, int(match["day"])
    hour, minute, second = (int(match[name]) for name in ("hour", "minute", "second"))
    if not (year >= 1970 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and second <= 60):
        return None
    return calendar.timegm((year, month, day, hour, minute, second))


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
