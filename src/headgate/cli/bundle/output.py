"""Where results go, and payloads of any size on their way there."""

import mmap
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headgate.bundle.output import Target

__all__ = ["OUT", "slices", "target_of"]

OUT: Callable[..., Any] = click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    required=True,
    help="The result; it may be FILE itself, and - is standard output.",
)

_SLICE = 1 << 20


def target_of(out: str) -> "Target":
    """Give what to write to: standard output, or a path that has been checked.

    Raises `ConfigurationError` for a path that no file can have.
    """
    if out == "-":
        return sys.stdout.buffer
    from headgate.bundle.output import check_target

    check_target(out)
    return out


def slices(payload: memoryview) -> Iterator[memoryview]:
    """Yield a payload in pieces; pages of a mapped file are given back once a piece of them has been used.

    They would count as this process's memory until it ends.
    """
    mapping = payload.obj
    forget = mapping.madvise if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") else None
    for start in range(0, len(payload), _SLICE):
        yield payload[start : start + _SLICE]
        if forget is not None:
            forget(mmap.MADV_DONTNEED)
