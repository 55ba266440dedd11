"""What commands print and how they end: JSON for programs, counts and sizes for people, and the answer no."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, AnyStr, Final, NoReturn

import click

from headgate.cli.terminal import harmless
from headgate.errors import ConfigurationError

__all__ = [
    "counted",
    "end_with_no",
    "json_line",
    "print_bytes",
    "print_in_batches",
    "print_json",
    "size_of",
    "styled",
    "unreadable",
]

_BATCH_SIZE: Final = 16 * 1024
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def json_line(value: Any) -> bytes:
    """Write one JSON value on a line of its own, in UTF-8."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def print_json(value: Any) -> None:
    """Print one JSON value on a line of its own, in UTF-8 whatever the terminal speaks."""
    print_bytes(json_line(value))


def print_bytes(content: bytes) -> None:
    """Print bytes as they are."""
    sys.stdout.buffer.write(content)


def print_in_batches(lines: Iterable[AnyStr], show: Callable[[AnyStr], object], *, size: int = _BATCH_SIZE) -> None:
    """Hand lines to `show` together, once they are of that size: to write each by itself takes longer than to make it.

    Where `lines` raises, those that it gave before are shown first.
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
    """End with exit code 1, the answer being no, once all that was printed is out."""
    sys.stdout.flush()
    click.get_current_context().exit(1)


@contextmanager
def unreadable(file: str) -> Iterator[None]:
    """Say of a file that cannot be read inside which one, and why."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        name = harmless(file) or "a file without a name"
        raise ConfigurationError(f"{name}: {said}; name a file that can be read") from None


def counted(count: int, noun: str) -> str:
    """Give a number of things: 1 file, 2 files."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_of(count: int) -> str:
    """Give bytes as people read them: 999 B, 1.3 kB, 23.5 MB."""
    if count < 1000:
        return f"{count} B"
    power = next((power for power in range(1, len(_UNITS)) if count < 999.95 * 1000**power), len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def styled(text: str, **styles: Any) -> str:
    """Give `text` in a colour or weight, unless NO_COLOR asks for none; `click.echo` takes it away from no terminal."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **styles)
