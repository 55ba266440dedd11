"""Where results go, and payloads of any size on their way there."""

import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.terminal import progress

if TYPE_CHECKING:
    from headgate.bundle.files.atomic_file import Progress, Target
    from headgate.bundle.reading.mi_decoding import DecodedResponse

__all__ = ["OUT", "content", "forget", "meter", "slices", "target_of"]

OUT: Callable[..., Any] = click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    required=True,
    help="The result; it may be FILE itself, and - is standard output.",
)

_SLICE = 1 << 20
_PARTS = 1_000


def target_of(out: str) -> "Target":
    """Give what to write to: standard output, or a path that has been checked.

    Raises `ConfigurationError` for a path that no file can have.
    """
    if out == "-":
        return sys.stdout.buffer
    from headgate.bundle.files.atomic_file import check_target

    check_target(out)
    return out


@contextmanager
def meter(what: str, read: memoryview | None = None) -> "Iterator[Progress]":
    """Show a bar on stderr, where that is a terminal, for what tells how much it has written of how much.

    What `read` has in memory of the file that is read is given back each time.
    """
    shown = 0
    with progress(what, _PARTS) as advance:

        def tell(written: int, total: int) -> None:
            nonlocal shown
            part = _PARTS * written // max(total, 1)
            advance(part - shown)
            shown = part
            if read is not None:
                forget(read)

        yield tell


def slices(payload: memoryview) -> Iterator[memoryview]:
    """Yield a payload in pieces, and give back the memory of each that was used."""
    for start in range(0, len(payload), _SLICE):
        yield payload[start : start + _SLICE]
        forget(payload)


def content(response: "DecodedResponse") -> Iterator[memoryview]:
    """Yield what is shown of a response in pieces, and give back the memory of those that were used."""
    for start in range(0, response.length, _SLICE):
        yield from response.pieces(start, start + _SLICE)
        forget(response.payload)


def forget(view: memoryview) -> None:
    """Give back the pages of a mapped file that were read so far: they count as this process's memory until it ends.

    Nothing is lost: they are read again when they are asked for again.
    """
    if isinstance(view.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)
