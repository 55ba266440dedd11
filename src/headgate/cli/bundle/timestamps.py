"""Times on the command line: RFC 3339, or relative to another time (`+7d`)."""

import re
from datetime import datetime
from typing import Any, NamedTuple

import click

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LATER = re.compile(r"([+-]\d{1,9})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Timestamp(NamedTuple):
    """A time, absolute or relative."""

    seconds: int
    """Since 1970, or from another time."""
    relative: bool

    def after(self, base: int) -> int:
        """Return the time in seconds since 1970; a relative one counts from `base`."""
        return base + self.seconds if self.relative else self.seconds


class _TimestampType(click.ParamType[Timestamp]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Timestamp:
        """Read RFC 3339 or +7d; a fraction of a second is dropped."""
        found = _read(str(value))
        if found is None:
            self.fail(f"invalid time {value!r}; expected 2030-01-31T12:00:00Z, or +7d (s, m, h, d, w)", param, ctx)
        return found


def _read(text: str) -> Timestamp | None:
    if later := _LATER.fullmatch(text):
        return Timestamp(int(later[1]) * _UNITS[later[2]], relative=True)
    if not _RFC_3339.fullmatch(text):
        return None
    try:
        return Timestamp(int(datetime.fromisoformat(text.upper()).timestamp()), relative=False)
    except (ValueError, OverflowError):
        return None


TIMESTAMP = _TimestampType()
"""RFC 3339, or +7d."""
