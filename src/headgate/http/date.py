"""HTTP-dates: three forms, all of them UTC, to the second (RFC 9110, section 5.6.7)."""

import calendar
import re
from typing import Final

_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_DAYS = (b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday")
_DAY = b"(?:" + b"|".join(name[:3] for name in _DAYS) + b")"
_WHOLE_DAY = b"(?:" + b"|".join(_DAYS) + b")"
_TIME = rb"(?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9]):(?P<second>[0-6][0-9])"
# 9110 5.6.7: the form to send, and two older ones that recipients must read. Names are case-sensitive; the day of the
# week is not compared with the date.
_DATES = [
    re.compile(_DAY + rb", (?P<day>[0-3][0-9]) " + _MONTH + rb" (?P<year>[0-9]{4}) " + _TIME + rb" GMT"),
    re.compile(_WHOLE_DAY + rb", (?P<day>[0-3][0-9])-" + _MONTH + rb"-(?P<year>[0-9]{2}) " + _TIME + rb" GMT"),
    re.compile(_DAY + b" " + _MONTH + rb" (?P<day>[ 0-3][0-9]) " + _TIME + rb" (?P<year>[0-9]{4})"),
]


_YEAR: Final = 365.2425 * 86400
_MAX_NOW: Final = 2e11
"""Seconds since 1970: later, a year has more than four digits."""


def parse_http_date(value: bytes, *, now: float | None = None) -> int | None:
    """Read an HTTP-date as seconds since 1970; None for a malformed date, and for one before 1970.

    `now`, in seconds since 1970, decides the century of a year of two digits; without it the year is 1970 to 2069.
    """
    for pattern in _DATES:
        match = pattern.fullmatch(value)
        if match is None:
            continue
        if len(match["year"]) == 4:
            return _seconds(match, int(match["year"]))
        return _of_two_digits(match, int(match["year"]), now)
    return None


def _of_two_digits(match: re.Match[bytes], digits: int, now: float | None) -> int | None:
    """Return the date in the past with these digits where the next one is more than 50 years ahead (9110 5.6.7).

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
