"""What is shown on a terminal: progress bars, and untrusted text made safe to print."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

__all__ = ["Advance", "harmless", "progress", "sayable", "shortened"]

Advance = Callable[[int], None]
"""Is told how much more has been done."""

_LONGEST_NAME = 60
_CLEAR_LINE = "\r\x1b[K"


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar on stderr while inside, where that is a terminal; only `what` when the `total` is unknown."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    if total is None:
        click.echo(f"{what} …", err=True, nl=False)
        try:
            yield lambda _more: None
        finally:
            click.echo(_CLEAR_LINE, err=True, nl=False)
        return
    with click.progressbar(length=total, label=what, file=sys.stderr) as bar:
        yield bar.update


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
