"""What people see: progress on a terminal, and strangers' bytes made safe to print."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Advance", "harmless", "progress", "sayable", "shortened"]

Advance = Callable[[int], None]
"""Is told how much more has been done."""

_LONGEST_NAME = 60


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show a bar on stderr while inside, where that is a terminal; `total` is None when nobody knows."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda more: bars.advance(bar, more)


def sayable(text: bytes) -> str:
    """Give bytes as text; what is not UTF-8 is escaped with a backslash."""
    return text.decode("utf-8", "backslashreplace")


def harmless(text: str) -> str:
    """Give `text` fit for a terminal: nothing in it moves a cursor, changes a colour or ends a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str) -> str:
    """Give `text` fit for one column of a terminal: `harmless`, and not too long."""
    safe = harmless(text)
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[: _LONGEST_NAME - 1]}…"
