"""Moments on the command line: RFC 3339, or so much later than another moment (`+7d`)."""

import re
from datetime import datetime
from typing import Any, NamedTuple

import click

__all__ = ["MOMENT", "Moment"]

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LATER = re.compile(r"([+-]\d{1,9})([smhdw])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Moment(NamedTuple):
    """A moment as it was given."""

    seconds: int
    """Since 1970, or from another moment."""
    relative: bool

    def after(self, base: int) -> int:
        """Give the moment in seconds since 1970, where `base` is what it may be relative to."""
        return base + self.seconds if self.relative else self.seconds


class _Moment(click.ParamType[Moment]):
    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """Read RFC 3339 or +7d; a fraction of a second is dropped."""
        moment = _read(str(value))
        if moment is None:
            self.fail(f"{value!r} is no moment; try 2030-01-31T12:00:00Z, or +7d (s, m, h, d, w)", param, ctx)
        return moment


def _read(text: str) -> Moment | None:
    if later := _LATER.fullmatch(text):
        return Moment(int(later[1]) * _UNITS[later[2]], relative=True)
    if not _RFC_3339.fullmatch(text):
        return None
    try:
        return Moment(int(datetime.fromisoformat(text.upper()).timestamp()), relative=False)
    except (ValueError, OverflowError):
        return None


MOMENT = _Moment()
"""RFC 3339, or +7d."""
