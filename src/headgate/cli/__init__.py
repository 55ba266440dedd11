"""The front door: the `headgate` program. One file per command group; objects are composed from configuration here."""

from headgate.cli.program import main

__all__ = ["main"]
