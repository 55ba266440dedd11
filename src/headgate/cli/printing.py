"""Print the results of commands, as JSON or as text, and end with exit code 1."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, AnyStr, Final, NoReturn

import click

from headgate.cli.terminal import harmless
from headgate.errors import ConfigurationError

_BATCH_SIZE: Final = 16 * 1024
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


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


def print_in_batches(lines: Iterable[AnyStr], show: Callable[[AnyStr], object], *, size: int = _BATCH_SIZE) -> None:
    """Pass lines to `show` in batches of about `size`: to write each line alone takes longer than to create it.

    If `lines` raises, the lines before are shown first.
    """
    batch: list[AnyStr] = []
    length = 0
    try:
        for line in lines:
            batch.append(line)
            length += len(line)
            if length >= size:
                show(line[:0].join(batch))
                batch.clear()
                length = 0
    finally:
        if batch:
            show(batch[0][:0].join(batch))


def end_with_no() -> NoReturn:
    """Exit with code 1, the answer no, after flushing standard output."""
    sys.stdout.flush()
    click.get_current_context().exit(1)


@contextmanager
def unreadable(file: str) -> Iterator[None]:
    """Turn an `OSError` inside into a `ConfigurationError` that names the file and the reason."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        name = harmless(file) or "(empty file name)"
        raise ConfigurationError(f"{name}: {reason}; name a readable file") from None


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 file, 2 files."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_of(count: int) -> str:
    """Format a number of bytes: 999 B, 1.3 kB, 23.5 MB."""
    if count < 1000:
        return f"{count} B"
    power = next((power for power in range(1, len(_UNITS)) if count < 999.95 * 1000**power), len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def styled(text: str, **styles: Any) -> str:
    """Style `text` unless NO_COLOR is set; `click.echo` removes the style if the output is not a terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **styles)
