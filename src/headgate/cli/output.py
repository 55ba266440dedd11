"""What commands print: JSON, text, sizes, colours, progress; untrusted text made printable; and exit code 1."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

from headgate.errors import ConfigurationError, reason_of

Advance = Callable[[int], None]
"""Advances a progress bar by an amount."""

_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB")
_MAX_COLUMN: Final = 60
_CLEAR_LINE: Final = "\r\x1b[K"


def json_line(value: Any) -> bytes:
    """Encode a JSON value as a line, in UTF-8."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def print_json(value: Any) -> None:
    """Print a JSON value as a line, in UTF-8 whatever the encoding of the terminal."""
    print_bytes(json_line(value))


def print_bytes(content: bytes) -> None:
    """Print bytes unchanged."""
    sys.stdout.buffer.write(content)


def printable(text: str) -> str:
    """Escape control characters, so that untrusted text cannot move the cursor, change colours or end a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shorten(text: str) -> str:
    """Escape control characters and truncate the text to one column."""
    safe = printable(text)
    return safe if len(safe) <= _MAX_COLUMN else f"{safe[: _MAX_COLUMN - 1]}…"


def decode_with_escapes(text: bytes) -> str:
    """Decode UTF-8; invalid bytes become backslash escapes."""
    return text.decode("utf-8", "backslashreplace")


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun: 1 file, 2 files."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_size(count: int) -> str:
    """Format a number of bytes: 999 B, 1.3 kB, 23.5 MB."""
    if count < 1000:
        return f"{count} B"
    power = next((power for power in range(1, len(_UNITS)) if count < 999.95 * 1000**power), len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def style(text: str, **styles: Any) -> str:
    """Style `text` for a terminal, unless NO_COLOR is set."""
    return click.style(text, **styles) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


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


@contextmanager
def report_read_errors(file: str) -> Iterator[None]:
    """Turn an `OSError` inside into a `ConfigurationError` that names the file and the reason."""
    try:
        yield
    except OSError as error:
        name = printable(file) or "(empty file name)"
        raise ConfigurationError(f"{name}: {reason_of(error)}; name a readable file") from None


def exit_with_failure() -> NoReturn:
    """Exit with code 1 (invalid, refused, not found), after flushing standard output."""
    sys.stdout.flush()
    click.get_current_context().exit(1)
