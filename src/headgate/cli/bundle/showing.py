"""What the commands print: JSON for programs, tables for people, and how a refusal is told to either."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click

from headgate.cli.terminal import harmless
from headgate.errors import BundleError, HeadgateError

__all__ = ["Allowance", "counted", "end_with_no", "json_line", "print_json", "refusals", "size_of", "styled", "told"]

_Said = TypeVar("_Said", str, bytes)

_SAID_FOR_A_BYTE = 16
_SAID_ANYWAY = 64 * 1024 * 1024
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


class Allowance:
    """How much is said of the responses of one bundle.

    Any number of keys may share a response, and what is said of each repeats its headers, which may be half a megabyte:
    a small file could fill any disk.
    """

    def __init__(self, size: int) -> None:
        """Begin with what a bundle of so many bytes may well take."""
        self._left = _SAID_FOR_A_BYTE * size + _SAID_ANYWAY

    def take(self, said: _Said) -> _Said:
        """Give back what is about to be said; raises `HeadgateError` where it is too much."""
        self._left -= len(said)
        if self._left < 0:
            raise HeadgateError(
                "so many URLs share such long headers that what there is to say of them could fill any disk, "
                "so the rest is left unsaid; get gives single responses"
            )
        return said


def json_line(value: Any) -> bytes:
    """Write one JSON value on a line of its own, in UTF-8."""
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def print_json(value: Any) -> None:
    """Print one JSON value on a line of its own, in UTF-8 whatever the terminal speaks."""
    sys.stdout.buffer.write(json_line(value))


def end_with_no() -> NoReturn:
    """End with exit code 1, the answer being no, once all that was printed is out."""
    sys.stdout.flush()
    click.get_current_context().exit(1)


def told(error: BundleError) -> dict[str, Any]:
    """Give a refusal as `--json` prints it."""
    return {
        "error": error.kind,
        "message": error.reason,
        "step": error.step,
        "offset": error.offset,
        "fallback_url": error.fallback_url,
    }


@contextmanager
def refusals(file: str, *, as_json: bool = False) -> Iterator[None]:
    """Tell a refusal of `file` met inside in one sentence, or as JSON on stdout; either way exit code 1."""
    try:
        yield
    except BundleError as error:
        if not as_json:
            raise HeadgateError(f"{harmless(file)}: {harmless(str(error))}") from None
        print_json(told(error))
        end_with_no()


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
