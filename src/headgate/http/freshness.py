"""How long a response stays fresh in a cache that several share (RFC 9111, sections 4.2 and 5).

This module parses fields; callers decide what is stored, and for how long.
"""

from typing import Final, NamedTuple

from headgate.http.date import parse_http_date
from headgate.http.fields import Pairs, lines_of, split_list

MAX_SECONDS: Final = 1 << 31
"""Maximum number of seconds; larger ones count as this one (RFC 9111, section 1.2.2)."""

_NOT_STORED: Final = frozenset({"no-store", "private"})
_NOT_REUSED: Final = _NOT_STORED | {"no-cache"}
_NOT_STALE: Final = _NOT_REUSED | {"must-revalidate", "proxy-revalidate", "s-maxage"}


class Freshness(NamedTuple):
    """The freshness of a response, by its fields."""

    lifetime: float | None
    """Seconds; 0 if the fields forbid reuse or are malformed, None without a lifetime."""
    age: float
    """Seconds that the response had spent in other caches when it arrived."""
    allows_storing: bool
    """Whether it may be stored (section 3)."""
    allows_stale: bool
    """Whether it may be used after its lifetime when the origin cannot be reached (section 4.2.4)."""


def freshness(fields: Pairs, *, now: float) -> Freshness:
    """Read `Cache-Control`, `Expires`, `Date` and `Age` of a response that arrived at the instant `now`.

    Of a repeated directive or field the first counts; a malformed one makes the response stale (section 4.2.1).
    """
    directives = _directives(fields)
    ages = lines_of(fields, "age")
    # 5.1: of a list the first member counts, and an invalid one is ignored.
    age = (delta_seconds(ages[0].partition(",")[0].strip("\t ")) if ages else None) or 0
    names = directives.keys()
    return Freshness(
        _lifetime(directives, fields, now),
        age,
        allows_storing=names.isdisjoint(_NOT_STORED),
        allows_stale=names.isdisjoint(_NOT_STALE),
    )


def delta_seconds(text: str) -> int | None:
    """Read a whole number of seconds, at most `MAX_SECONDS`; None for a malformed one (section 1.2.2)."""
    if not (text.isascii() and text.isdigit()):
        return None
    # Python refuses thousands of digits; eleven significant ones exceed the maximum already.
    digits = text.lstrip("0")[:11]
    return min(int(digits or "0"), MAX_SECONDS)


def _lifetime(directives: dict[str, str], fields: Pairs, now: float) -> float | None:
    """Return the first of these that is present (4.2.1): s-maxage, max-age, Expires minus Date."""
    if not directives.keys().isdisjoint(_NOT_REUSED):
        return 0
    given = [delta_seconds(directives[name]) for name in ("s-maxage", "max-age") if name in directives]
    if given:
        return 0 if None in given else given[0]
    expires, dates = lines_of(fields, "expires"), lines_of(fields, "date")
    if not expires:
        return None
    until = _date(expires[0], now)
    if until is None:
        return 0  # 5.3: invalid values, in particular "0", mean the past
    date = _date(dates[0], now) if dates else None
    return min(max(0.0, until - (now if date is None else date)), MAX_SECONDS)


def _directives(fields: Pairs) -> dict[str, str]:
    """Return the first value of each directive of `Cache-Control`, without quotes, by its name in lower case."""
    directives: dict[str, str] = {}
    lines = lines_of(fields, "cache-control")
    for member in split_list(lines) if lines else ():
        name, _, value = member.partition("=")
        # 5.2: a value may be a token or a quoted string.
        directives.setdefault(name.strip("\t ").lower(), _unquoted(value.strip("\t ")))
    return directives


def _unquoted(value: str) -> str:
    if len(value) < 2 or not (value.startswith('"') and value.endswith('"')):
        return value
    return value[1:-1].replace("\\", "")


def _date(value: str, now: float) -> int | None:
    return parse_http_date(value.strip("\t ").encode("latin-1", "replace"), now=now)
