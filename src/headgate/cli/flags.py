"""Flags that several commands read the same way: a wrong one is told by its name and with one that works."""

import math
from typing import Any

import click

from headgate.errors import ConfigurationError

__all__ = ["ADDRESS", "RULE", "SECONDS"]


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


class _Address(click.ParamType[str]):
    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check HOST:PORT."""
        from headgate.config import Address

        try:
            return str(Address.parse(value))
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


class _Rule(click.ParamType[str]):
    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a rule."""
        from headgate.limit import Rule

        try:
            Rule.parse(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        return str(value)


SECONDS = _Seconds()
"""A number of seconds, 0 or more and finite."""

ADDRESS = _Address()
"""HOST:PORT, as text that has been checked."""

RULE = _Rule()
"""A rule, as text that has been checked."""
