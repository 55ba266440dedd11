"""`headgate advice`: read, fetch and check traffic advice. One module per command, imported when it is asked for."""

from collections.abc import Mapping
from typing import ClassVar

import click

from headgate.cli.program import Program

__all__ = ["advice"]

_COMMANDS = {
    "parse": ("parse:parse", "What a document advises an agent."),
    "fetch": ("fetch:fetch", "What an origin advises an agent, and for how long."),
    "check": ("check:check", "All that is wrong or unwise in what an origin serves."),
}


class _Advice(Program):
    sentences: ClassVar[Mapping[str, str]] = {name: sentence for name, (_, sentence) in _COMMANDS.items()}

    def find(self, name: str) -> tuple[str, str]:
        """Return the module of a command that there is, and its name there."""
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return f"headgate.cli.advice.{module}", attribute


@click.group(cls=_Advice, epilog="Start with: headgate advice fetch https://example.com")
def advice() -> None:
    """Read, fetch and check traffic advice: how much automated traffic an origin wants.

    Origins serve it at /.well-known/traffic-advice, as application/trafficadvice+json.
    """
