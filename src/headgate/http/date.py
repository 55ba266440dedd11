"""HTTP-dates: three forms, all of them UTC, to the second (RFC 9110, section 5.6.7)."""

import calendar
import re

__all__ = ["http_date"]

_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_TIME = rb"(?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9]):(?P<second>[0-6][0-9])"
# 9110 5.6.7: the one form to send and two older ones to understand.
_DATES = [
    re.compile(rb"[A-Z][a-z]{2}, (?P<day>[0-3][0-9]) " + _MONTH + rb" (?P<year>[0-9]{4}) " + _TIME + rb" GMT"),
    re.compile(rb"[A-Z][a-z]{5,8}, (?P<day>[0-3][0-9])-" + _MONTH + rb"-(?P<year>[0-9]{2}) " + _TIME + rb" GMT"),
    re.compile(rb"[A-Z][a-z]{2} " + _MONTH + rb" (?P<day>[ 0-3][0-9]) " + _TIME + rb" (?P<year>[0-9]{4})"),
]


def http_date(value: bytes) -> int | None:
    """Read an HTTP-date as seconds since 1970; None for what is none."""
    for pattern in _DATES:
        match = pattern.fullmatch(value)
        if match is None:
            continue
        day, year = int(match["day"]), int(match["year"])
        if len(match["year"]) == 2:
            # 9110 5.6.7 asks which century is less than 50 years ahead: as good as asked once and for all.
            year += 2000 if year < 70 else 1900
        month = _MONTHS.index(match["month"]) + 1
        hour, minute, second = (int(match[name]) for name in ("hour", "minute", "second"))
        if not (year >= 1970 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and second <= 60):
            return None
        return calendar.timegm((year, month, day, hour, minute, second))
    return None
