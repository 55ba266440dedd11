"""The argument and options that say which bundle a command reads, and how."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headgate.cli.bundle.output import bundle_errors
from headgate.cli.output import printable, report_read_errors
from headgate.cli.params import Parsed
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.bundle import Bundle
    from headgate.bundle.files.byte_source import Source
    from headgate.bundle.model import Profile


_FILE: Callable[..., Any] = click.argument("file", metavar="FILE|URL|-")
"""A bundle; - is standard input."""

PROFILE: Callable[..., Any] = click.option(
    "--profile",
    type=click.Choice(["strict", "compat"]),
    default="strict",
    show_default=True,
    help="strict: refuse what the document refuses; compat: accept what published tools write, and any media type "
    "from a server.",
)

_FROM_END: Callable[..., Any] = click.option(
    "--from-end", is_flag=True, help="The bundle ends at the end of the input; other data may precede it."
)


def _parse_base_url(text: str) -> str:
    from headgate.http.url import parse_url, resolve

    url = parse_url(text)
    if url is None or resolve("a", url) is None:
        raise ConfigurationError(f"invalid base URL {text!r}; expected an absolute URL such as https://example.com/")
    return url


_BASE_URL: Callable[..., Any] = click.option(
    "--base-url",
    type=Parsed("url", _parse_base_url),
    metavar="URL",
    help="URL that resolves the relative URLs of a b2 bundle.",
)


class BundleSource(NamedTuple):
    """A bundle named on the command line, and how to read it."""

    file: str
    profile: "Profile"
    from_end: bool
    base_url: str | None

    @property
    def name(self) -> str:
        """Its name for a terminal."""
        return printable(self.file)

    def read(self) -> "tuple[Source, dict[str, Any]]":
        """Return what `open_bundle` takes, and its options; a bundle on a server is fetched whole.

        Raises `FetchError`, and `ConfigurationError` without httpx2.
        """
        options = {"profile": self.profile, "from_end": self.from_end, "base_url": self.base_url}
        if not self.file.startswith(("http://", "https://")):
            return (sys.stdin.buffer.read() if self.file == "-" else Path(self.file)), options
        from headgate.agent.bundle.fetcher import download_bundle
        from headgate.bundle.format.metadata import MAX_UNTRUSTED_SECTION

        url, content = download_bundle(self.file, require_nosniff=self.profile == "strict")
        return content, {**options, "base_url": self.base_url or url, "max_section": MAX_UNTRUSTED_SECTION}

    @contextmanager
    def opened(self, *, as_json: bool = False) -> "Iterator[Bundle]":
        """Open the bundle; errors in it are printed as `bundle_errors` does.

        Raises `ConfigurationError` for a file that cannot be read.
        """
        from headgate.bundle import open_bundle

        with bundle_errors(self.file, as_json=as_json):
            with report_read_errors(self.file):
                content, options = self.read()
                bundle = open_bundle(content, **options)
            with bundle:
                yield bundle


def with_source(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command FILE, --profile and the other options of reading, as its argument `source`."""

    @functools.wraps(command)
    def wrapper(*, file: str, profile: "Profile", from_end: bool, base_url: str | None, **others: Any) -> Any:
        return command(source=BundleSource(file, profile, from_end, base_url), **others)

    decorated: Callable[..., Any] = _FILE(PROFILE(_FROM_END(_BASE_URL(wrapper))))
    return decorated


def absolute(url: str, base_url: str | None) -> str:
    """Return an absolute URL for one that may be relative to `base_url`; one that cannot be resolved is returned."""
    from headgate.http.url import parse_url, resolve

    return parse_url(url) or (base_url and resolve(url, base_url)) or url
