"""The `headgate` program: one module per command group. Flags become configuration, results become text or JSON.

This file, and that of the package `headgate`, import next to nothing: an interrupt during their imports would show a
traceback.
"""

import sys

TYPE_CHECKING = False  # `typing` takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]

_INTERRUPTED = 130
_NO_CLICK = (
    "headgate: the program needs the extra 'gate', 'proxy' or, without servers, 'cli'; "
    "install it from the repository: pip install '.[gate]'\n"
)


def main(arguments: "Sequence[str] | None" = None) -> "NoReturn":
    """Run the program with `arguments`, by default those of the process, and exit; with 130 after an interrupt.

    Without click, a base installation has only this file of the program: it says so, and exits with 2.
    """
    try:
        from headgate.cli.program import run

        code = run(arguments)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.stderr.write(_NO_CLICK)
        code = 2
    raise SystemExit(code)
