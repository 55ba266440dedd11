"""How every command that reads a bundle is told which, and opens it."""

import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.bundle.metadata import Profile
    from headgate.bundle.reader import Bundle

__all__ = ["FILE", "PROFILE", "opened", "read_whole", "reads", "source_of"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE: Callable[..., Any] = click.argument("file", metavar="FILE|-")
"""A bundle; - is standard input."""

PROFILE: Callable[..., Any] = click.option(
    "--profile",
    type=click.Choice(["strict", "compat"]),
    default="strict",
    show_default=True,
    help="strict: every MUST of the document; compat: what published tools write.",
)

_FROM_END: Callable[..., Any] = click.option(
    "--from-end", is_flag=True, help="The bundle ends where FILE ends; anything may stand before it."
)


def reads(command: _Command) -> _Command:
    """Give a command what every reader takes: FILE, --profile and --from-end."""
    decorated: _Command = FILE(PROFILE(_FROM_END(command)))
    return decorated


@contextmanager
def opened(file: str, *, profile: "Profile", from_end: bool = False) -> "Iterator[Bundle]":
    """Open a bundle.

    Raises `ConfigurationError` for a FILE that cannot be read, and `BundleError` for one that is no bundle.
    """
    from headgate.bundle.reader import open_bundle

    with unreadable(file):
        bundle = open_bundle(source_of(file), profile=profile, from_end=from_end)
    with bundle:
        yield bundle


def source_of(file: str) -> Path | bytes:
    """Give what `open_bundle` takes: a path where there is a file, its bytes where there is only a stream of them."""
    path = Path(file)
    if file != "-" and stat.S_ISREG(path.stat().st_mode):
        return path
    return read_whole(file)


def read_whole(file: str) -> bytes:
    """Read a file or, for -, standard input."""
    if file == "-":
        return sys.stdin.buffer.read()
    return Path(file).read_bytes()


@contextmanager
def unreadable(file: str) -> Iterator[None]:
    """Say of a file that cannot be read inside which one, and why."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        raise ConfigurationError(f"{file}: {said}; name a file that can be read") from None
