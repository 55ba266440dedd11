"""`headgate advice`: parse, fetch and check traffic advice. One module per command, imported when the command runs."""

from collections.abc import Mapping
from typing import ClassVar

import click

from headgate.cli.program import Program

__all__ = ["advice"]

_COMMANDS = {
    "parse": ("parse:parse", "Print what a document advises an agent."),
    "fetch": ("fetch:fetch", "Print what an origin advises an agent, and for how long."),
    "check": ("check:check", "Print errors and warnings for a document or an origin."),
}


class _Advice(Program):
    sentences: ClassVar[Mapping[str, str]] = {name: sentence for name, (_, sentence) in _COMMANDS.items()}

    def find(self, name: str) -> tuple[str, str]:
        """Return the module of a known command, and the name of its function."""
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return f"headgate.cli.advice.{module}", attribute


@click.group(cls=_Advice, epilog="Start with: headgate advice fetch https://example.com")
def advice() -> None:
    """Parse, fetch and check traffic advice: how much automated traffic an origin accepts.

    Origins serve it at /.well-known/traffic-advice, as application/trafficadvice+json.
    """
