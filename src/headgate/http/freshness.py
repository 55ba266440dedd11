"""How long a response stays fresh in a cache that several share (RFC 9111, sections 4.2 and 5).

Knows neither what is kept nor how long anybody wants to keep it: fields in, seconds out.
"""

from typing import Final, NamedTuple

from headgate.http.date import http_date
from headgate.http.lists import Pairs, lines_of, split

__all__ = ["MOST_SECONDS", "Freshness", "delta_seconds", "freshness"]

MOST_SECONDS: Final = 1 << 31
"""What every greater number of seconds counts as (RFC 9111, section 1.2.2)."""

_NOT_STORED: Final = frozenset({"no-store", "private"})
_NOT_REUSED: Final = _NOT_STORED | {"no-cache"}
_NOT_STALE: Final = _NOT_REUSED | {"must-revalidate", "proxy-revalidate", "s-maxage"}


class Freshness(NamedTuple):
    """What a response's fields say of its freshness."""

    lifetime: float | None
    """Seconds; 0 where the fields forbid keeping it, or cannot be understood; None where they say nothing."""
    age: float
    """Seconds it had been kept elsewhere when it came."""
    allows_storing: bool
    """Whether it may be kept at all, were it to be asked about again (section 3)."""
    allows_stale: bool
    """Whether it may be used past its lifetime where the origin cannot be reached (section 4.2.4)."""


def freshness(fields: Pairs, *, now: float) -> Freshness:
    """Read `Cache-Control`, `Expires`, `Date` and `Age` of a response that came at the instant `now`.

    What is said twice counts as first said, and what is said unintelligibly makes the response stale (section 4.2.1).
    """
    said = _directives(fields)
    ages = lines_of(fields, "age")
    # 5.1: of a list the first member counts, and an invalid one is passed over.
    age = (delta_seconds(ages[0].partition(",")[0].strip("\t ")) if ages else None) or 0
    names = said.keys()
    return Freshness(
        _lifetime(said, fields, now),
        age,
        allows_storing=names.isdisjoint(_NOT_STORED),
        allows_stale=names.isdisjoint(_NOT_STALE),
    )


def delta_seconds(text: str) -> int | None:
    """Read a whole number of seconds, at most `MOST_SECONDS`; None for what is none (section 1.2.2)."""
    if not (text.isascii() and text.isdigit()):
        return None
    # Python reads no more than a few thousand digits; ten that mean something are enough to be too many.
    digits = text.lstrip("0")[:11]
    return min(int(digits or "0"), MOST_SECONDS)


def _lifetime(said: dict[str, str], fields: Pairs, now: float) -> float | None:
    """Take the first there is (4.2.1): s-maxage, max-age, Expires less Date."""
    if not said.keys().isdisjoint(_NOT_REUSED):
        return 0
    given = [delta_seconds(said[name]) for name in ("s-maxage", "max-age") if name in said]
    if given:
        return 0 if None in given else given[0]
    expires, dates = lines_of(fields, "expires"), lines_of(fields, "date")
    if not expires:
        return None
    until = _date(expires[0], now)
    if until is None:
        return 0  # 5.3: above all the invalid value "0", which means the past
    date = _date(dates[0], now) if dates else None
    return min(max(0.0, until - (now if date is None else date)), MOST_SECONDS)


def _directives(fields: Pairs) -> dict[str, str]:
    """Give the directives of `Cache-Control` by their names in lower case, each as first said and without quotes."""
    said: dict[str, str] = {}
    lines = lines_of(fields, "cache-control")
    for member in split(lines) if lines else ():
        name, _, value = member.partition("=")
        # 5.2: a recipient takes the value as a token and as a quoted string.
        said.setdefault(name.strip("\t ").lower(), _unquoted(value.strip("\t ")))
    return said


def _unquoted(value: str) -> str:
    if len(value) < 2 or not (value.startswith('"') and value.endswith('"')):
        return value
    return value[1:-1].replace("\\", "")


def _date(value: str, now: float) -> int | None:
    return http_date(value.strip("\t ").encode("latin-1", "replace"), now=now)
