"""Progress bars, and untrusted text made safe for a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Advance = Callable[[int], None]
"""Advances a progress bar by an amount."""

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
    """Decode bytes; invalid UTF-8 is escaped with backslashes."""
    return text.decode("utf-8", "backslashreplace")


def harmless(text: str) -> str:
    """Escape control characters, so that the text cannot move the cursor, change colours or end a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str) -> str:
    """Escape control characters and truncate the text to one column."""
    safe = harmless(text)
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[: _LONGEST_NAME - 1]}…"
