"""How every command that reads a bundle is told which, and opens it."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headgate.cli.bundle.showing import refusals
from headgate.cli.printing import unreadable
from headgate.cli.terminal import harmless
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.bundle import Bundle
    from headgate.bundle.model import Profile

__all__ = ["FILE", "PROFILE", "Reading", "absolute", "reads", "source_of"]

FILE: Callable[..., Any] = click.argument("file", metavar="FILE|-")
"""A bundle; - is standard input."""

PROFILE: Callable[..., Any] = click.option(
    "--profile",
    type=click.Choice(["strict", "compat"]),
    default="strict",
    show_default=True,
    help="strict: refuse what the document refuses; compat: accept what published tools write.",
)

_FROM_END: Callable[..., Any] = click.option(
    "--from-end", is_flag=True, help="The bundle ends where FILE ends; anything may stand before it."
)


class _Base(click.ParamType[str]):
    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a URL that others can be relative to."""
        from headgate.http.url import parse_url, resolve

        url = parse_url(str(value))
        if url is None or resolve("a", url) is None:
            self.fail(f"{value!r} is no URL that others are relative to; try https://example.com/", param, ctx)
        return url


_BASE_URL: Callable[..., Any] = click.option(
    "--base-url", type=_Base(), metavar="U", help="What a b2 bundle's relative URLs are relative to."
)


class Reading(NamedTuple):
    """A bundle that was named on the command line, and how it is to be read."""

    file: str
    profile: "Profile"
    from_end: bool
    base_url: str | None

    @property
    def name(self) -> str:
        """What to call it on a terminal."""
        return harmless(self.file)

    @contextmanager
    def opened(self, *, as_json: bool = False) -> "Iterator[Bundle]":
        """Open it; what is refused inside is told as `refusals` does.

        Raises `ConfigurationError` for a file that cannot be read.
        """
        from headgate.bundle import open_bundle

        with refusals(self.file, as_json=as_json):
            with unreadable(self.file):
                source = source_of(self.file)
                bundle = open_bundle(source, profile=self.profile, from_end=self.from_end, base_url=self.base_url)
            with bundle:
                yield bundle


def reads(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command FILE, --profile and the others that say how to read it, as its argument `source`."""

    @functools.wraps(command)
    def reading(*, file: str, profile: "Profile", from_end: bool, base_url: str | None, **others: Any) -> Any:
        return command(source=Reading(file, profile, from_end, base_url), **others)

    decorated: Callable[..., Any] = FILE(PROFILE(_FROM_END(_BASE_URL(reading))))
    return decorated


def absolute(url: str, base_url: str | None) -> str:
    """Give an absolute URL for one that may be relative to `base_url`; what cannot be resolved stays as it is."""
    from headgate.http.url import parse_url, resolve

    return parse_url(url) or (base_url and resolve(url, base_url)) or url


def source_of(file: str) -> Path | bytes:
    """Give what `open_bundle` takes: a path or, for standard input, all that it has.

    Raises `ConfigurationError` for a URL: these commands read files.
    """
    if file.startswith(("http://", "https://")):
        name = harmless(file)
        raise ConfigurationError(f"{name}: expected a file, got a URL; save it with: headgate get {name} -o FILE")
    return sys.stdin.buffer.read() if file == "-" else Path(file)
