"""HTTP-dates: three forms, all of them UTC, to the second (RFC 9110, section 5.6.7)."""

import calendar
import re

__all__ = ["http_date"]

_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_MONTH = rb"(?P<month>" + b"|".join(_MONTHS) + rb")"
_DAYS = (b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday")
_DAY = b"(?:" + b"|".join(name[:3] for name in _DAYS) + b")"
_WHOLE_DAY = b"(?:" + b"|".join(_DAYS) + b")"
_TIME = rb"(?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9]):(?P<second>[0-6][0-9])"
# 9110 5.6.7: the one form to send and two older ones to understand. Names have their case; a day that is not the date's
# is nobody's reason to doubt the date.
_DATES = [
    re.compile(_DAY + rb", (?P<day>[0-3][0-9]) " + _MONTH + rb" (?P<year>[0-9]{4}) " + _TIME + rb" GMT"),
    re.compile(_WHOLE_DAY + rb", (?P<day>[0-3][0-9])-" + _MONTH + rb"-(?P<year>[0-9]{2}) " + _TIME + rb" GMT"),
    re.compile(_DAY + b" " + _MONTH + rb" (?P<day>[ 0-3][0-9]) " + _TIME + rb" (?P<year>[0-9]{4})"),
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
