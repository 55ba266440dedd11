"""The `headgate` program: one module per command group. Flags become configuration, results become text or JSON."""

from headgate.cli.program import main

__all__ = ["main"]
