"""Output files, progress, and payloads of any size."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.output import progress

if TYPE_CHECKING:
    from headgate.bundle.files.atomic_file import Progress, Target
    from headgate.bundle.reading.mi_decoding import DecodedResponse


def _output(help_text: str) -> Callable[..., Any]:
    return click.option("-o", "--output", "out", metavar="OUT", required=True, help=help_text)


NEW_OUT = _output("Output file; - for standard output.")
OUT = _output("Output file, may be FILE itself; - for standard output.")

_PIECE_SIZE = 1 << 20
_STEPS = 1_000


def output_target(out: str) -> "Target":
    """Return standard output, or the path; raises `ConfigurationError` for one that cannot be written."""
    if out == "-":
        return sys.stdout.buffer
    from headgate.bundle.files.atomic_file import check_target

    check_target(out)
    return out


@contextmanager
def progress_bar(what: str, read: memoryview | None = None) -> "Iterator[Progress]":
    """Show a progress bar on stderr if that is a terminal; return what is called with bytes written and total.

    The memory of `read`, a mapped file, is released each time.
    """
    from headgate.bundle.files.byte_source import release_pages

    shown = 0
    with progress(what, _STEPS) as advance:

        def update(written: int, total: int) -> None:
            nonlocal shown
            part = _STEPS * written // max(total, 1)
            advance(part - shown)
            shown = part
            if read is not None:
                release_pages(read)

        yield update


def payload_pieces(payload: memoryview) -> Iterator[memoryview]:
    """Yield a payload in pieces, and release the memory of each after use."""
    from headgate.bundle.files.byte_source import release_pages

    for start in range(0, len(payload), _PIECE_SIZE):
        yield payload[start : start + _PIECE_SIZE]
        release_pages(payload)


def content_pieces(response: "DecodedResponse") -> Iterator[memoryview]:
    """Yield the content of a response in pieces, and release the memory of each after use."""
    from headgate.bundle.files.byte_source import release_pages

    for start in range(0, response.length, _PIECE_SIZE):
        yield from response.pieces(start, start + _PIECE_SIZE)
        release_pages(response.payload)
