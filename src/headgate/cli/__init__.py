"""The `headgate` program: one module per command group. Flags become configuration, results become text or JSON.

This file, and that of the package `headgate`, import next to nothing: an interrupt during their imports would show a
traceback.
"""

TYPE_CHECKING = False  # `typing` takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: "Sequence[str] | None" = None) -> "NoReturn":
    """Run the program with `arguments`, by default those of the process, and exit; with 130 after an interrupt."""
    try:
        from headgate.cli.program import run

        code = run(arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    raise SystemExit(code)
