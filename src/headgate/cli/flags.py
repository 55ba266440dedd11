"""Flags that several commands read the same way."""

import math
from typing import Any

import click

__all__ = ["SECONDS"]


class _Seconds(click.ParamType[float]):
    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number of seconds, 0 or more and finite."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            self.fail(f"{value!r} is no number of seconds; try 5 or 0.25", param, ctx)
        return seconds


SECONDS = _Seconds()
"""A number of seconds, 0 or more and finite."""
