"""Kinds of flags that only the proxy has; a wrong one is told by its name and with one that works."""

import math
from typing import Any

import click

from headgate.cli.flags import RULE
from headgate.errors import ConfigurationError

__all__ = ["ALPN", "CIDR", "COUNT", "PORT", "RATE", "RATIO"]

_PROTOCOLS = ("h2", "http/1.1")


class _Alpn(click.ParamType[tuple[str, ...]]):
    name = "alpn"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Read protocols with commas between them."""
        protocols = tuple(dict.fromkeys(word.strip() for word in str(value).split(",")))
        if not set(protocols) <= set(_PROTOCOLS):
            self.fail(f"{value!r} is not h2, http/1.1 or both with a comma between; try 'h2,http/1.1'", param, ctx)
        return protocols


class _Cidr(click.ParamType[str]):
    name = "cidr"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check an address or a CIDR."""
        from headgate.proxy.admission.destinations import parse_network

        try:
            parse_network(str(value))
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class _Rate(click.ParamType[str]):
    name = "rule|off"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a rule, or the word off."""
        return "off" if value == "off" else RULE.convert(value, param, ctx)


class _Ratio(click.ParamType[float]):
    name = "ratio"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number, 0 or more and finite."""
        try:
            ratio = float(value)
        except ValueError:
            ratio = math.nan
        if not 0 <= ratio < math.inf:
            self.fail(f"{value!r} is no ratio; try 1 or 0.5", param, ctx)
        return ratio


ALPN = _Alpn()
"""Protocols with commas between them, as a tuple."""

CIDR = _Cidr()
"""An address or a CIDR, as text that has been checked."""

RATE = _Rate()
"""A rule or the word off, as text that has been checked."""

RATIO = _Ratio()
"""A number, 0 or more and finite."""

COUNT = click.IntRange(1, 10_000_000)
"""How many, at least one."""

PORT = click.IntRange(1, 65_535)
"""A port that can be named."""
