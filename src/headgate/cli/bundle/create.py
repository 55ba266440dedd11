"""`headgate bundle create`: a bundle of a directory, a HAR, a list of URLs or a WARC."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from headgate.cli.advice.saying import identity
from headgate.cli.bundle.convert import remark
from headgate.cli.bundle.opening import absolute
from headgate.cli.bundle.output import OUT, meter, target_of
from headgate.cli.params import header_option, join_fields
from headgate.cli.printing import counted, end_with_no, size_of
from headgate.cli.terminal import harmless, progress
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity
    from headgate.bundle.files.writer import BundleWriter
    from headgate.bundle.model import Exchange, Version

__all__ = ["create"]


class _Source(NamedTuple):
    """Where the exchanges come from, and what is known of them before the first."""

    name: str
    exchanges: "Iterable[Exchange]"
    primary_url: str | None = None
    manifest_url: str | None = None
    main_is_there: bool = True
    """Whether the primary URL is that of an exchange."""
    failed: Callable[[], int] = int
    """How many of the exchanges that were asked for could not be had, as far as is known by now."""


class _Codings(click.ParamType[tuple[str, ...]]):
    name = "codings"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Read gzip,br,zstd; the library says which of them there are."""
        codings = tuple(word.strip().lower() for word in str(value).split(","))
        if not all(codings):
            self.fail(f"{value!r} is no list of codings; try gzip,br", param, ctx)
        return codings


@click.command(short_help="A bundle of a directory, a HAR, a list of URLs or a WARC.")
@click.option("--dir", "directory", metavar="D", help="A site's files; --base-url says where they are.")
@click.option("--base-url", metavar="U", help="The URL of the directory itself, such as https://example.com/.")
@click.option("--har", metavar="F", help="A HAR, as browsers save it; with content.")
@click.option("--urls", metavar="F", help="A file with a URL a line, or -; they are fetched one after another.")
@click.option("--warc", metavar="F", help="A web archive, plain or gzip.")
@click.option(
    "--version", type=click.Choice(["b1", "b2", "draft-01"]), default="b2", show_default=True, help="To write."
)
@click.option(
    "--primary-url",
    metavar="U",
    help="The main resource; it may be relative to the base URL.  [default: the base URL, or the first exchange's]",
)
@click.option(
    "--manifest-url",
    metavar="U",
    help="The manifest; as --primary-url.  [default: that of the directory, if it has one]",
)
@header_option("A field to set in each response; repeated: several.")
@click.option(
    "--compress", "codings", type=_Codings(), metavar="C", help="gzip,br,zstd: variants in these codings; not in b2."
)
@identity(default=None, purpose="With --urls: ")
@OUT
@click.argument("words", nargs=-1, metavar="")
def create(
    *,
    words: tuple[str, ...],
    version: "Version",
    primary_url: str | None,
    manifest_url: str | None,
    fields: tuple[tuple[str, str], ...],
    codings: tuple[str, ...] | None,
    identity: "AgentIdentity | None",
    out: str,
    **sources: str | None,
) -> None:
    """Make a bundle of a directory, a HAR, a list of URLs or a WARC.

    The same input gives the same bytes. b2 is what today's tools read. b1 and draft-01 have variants and signatures of
    responses, and need a manifest: a directory's manifest.webmanifest or manifest.json is found by itself. What is left
    out of the bundle is said on stderr: with --urls also each error such as a 404, which makes the exit code 1, while a
    HAR's or a WARC's is kept.

    URLs are fetched one at a time: each origin is asked for its traffic advice first, and a server that fails or is
    busy is asked twice more, not before the time in Retry-After, if that is within a minute.

    \b
    headgate bundle create --dir site --base-url https://example.com/ -o site.wbn
    headgate bundle create --dir site --base-url https://example.com/ --version b1 --compress gzip,br -o site.wbn
    headgate bundle create --har page.har -H 'Cache-Control: max-age=600' -o page.wbn
    headgate bundle create --urls urls.txt -o pages.wbn
    """
    if words:
        raise click.UsageError(
            f"unexpected {words[0]!r}: name the source with an option, such as --dir {words[0]} --base-url U"
        )
    if codings and version == "b2":
        raise click.UsageError("--compress stores variants, which b2 does not have; add --version b1")
    target = target_of(out)
    base_url = sources["base_url"]
    primary_url, manifest_url = (url and absolute(url, base_url) for url in (primary_url, manifest_url))
    source = _source(out, sources, identity)
    first, exchanges = _peeked(source.exchanges)
    from headgate.bundle import BundleWriter
    from headgate.bundle.sources import compress

    manifest = manifest_url or (source.manifest_url if version != "b2" else None)
    if manifest is None and version != "b2":
        raise ConfigurationError(
            f"{source.name}: no manifest found, and a {version} bundle needs one; "
            "name it with --manifest-url, or write b2"
        )
    exchanges = _with_fields(exchanges, join_fields(fields)) if fields else exchanges
    exchanges = compress(exchanges, codings, version=version) if codings else exchanges
    primary = primary_url or _default_primary(source, first, version)
    with meter("writing") as told:
        writer = BundleWriter(target, version=version, primary_url=primary, manifest_url=manifest, progress=told)
        count = _add_all(writer, exchanges)
        remarks = writer.remarks()
        writer.close()
    remark(out, remarks)
    click.echo(f"{harmless(out)}: {counted(count, 'response')}, {size_of(writer.length)}, {version}", err=True)
    if source.failed():
        end_with_no()


def _source(out: str, named: dict[str, str | None], identity: "AgentIdentity | None") -> _Source:
    """Find the one source that was named, and open it."""
    base_url = named.pop("base_url")
    given = {name: value for name, value in named.items() if value is not None}
    if len(given) != 1:
        raise click.UsageError("name one source: --dir D --base-url U, --har F, --urls F or --warc F")
    ((kind, value),) = given.items()
    if (kind == "directory") != (base_url is not None):
        wrong = (
            "--dir needs --base-url, the URL of the directory" if base_url is None else "--base-url is for --dir alone"
        )
        raise click.UsageError(wrong)
    if kind == "urls":
        return _urls(value, identity)
    if identity is not None:
        raise click.UsageError("--identity is for --urls alone")
    return _SOURCES[kind](value, base_url or "", out)


def _default_primary(source: _Source, first: str, version: "Version") -> str | None:
    """Give the main resource's URL where nobody named it; in b2 only one that is in the bundle will do."""
    if source.main_is_there or version != "b2":
        return source.primary_url or first
    return None


def _directory(name: str, base_url: str, out: str) -> _Source:
    from headgate.bundle.sources import directory, find_manifest

    root = Path(name)
    exchanges = _without(directory(root, base_url, tell=_tell), out)
    manifest = find_manifest(root, base_url)
    return _Source(name, exchanges, base_url, manifest, main_is_there=(root / "index.html").is_file())


def _har(name: str, _base_url: str, _out: str) -> _Source:
    from headgate.bundle.sources import har

    return _Source(name, har(Path(name), tell=_tell))


def _warc(name: str, _base_url: str, _out: str) -> _Source:
    from headgate.bundle.sources import warc

    return _Source(name, warc(Path(name), tell=_tell))


def _urls(name: str, identity: "AgentIdentity | None") -> _Source:
    from headgate.agent.bundle.collect import collect
    from headgate.agent.bundle.url_list import read_url_list

    if name.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"--urls takes a file with a URL a line, or - for standard input; got {harmless(name)}"
        )

    urls = read_url_list(Path("/dev/stdin" if name == "-" else name))
    collection = collect(urls, identity=identity, tell=_tell)
    return _Source(name, collection, failed=lambda: collection.failed)


_SOURCES = {"directory": _directory, "har": _har, "warc": _warc}


def _tell(sentence: str) -> None:
    click.echo(f"headgate: {harmless(sentence)}", err=True)


def _peeked(exchanges: "Iterable[Exchange]") -> "tuple[str, Iterator[Exchange]]":
    """Give the URL of the first exchange, and all of them; a bundle of nothing has no use."""
    remaining = iter(exchanges)
    first = next(remaining, None)
    if first is None:
        raise ConfigurationError("there is nothing to bundle; no bundle is written")
    return first.url, itertools.chain((first,), remaining)


def _without(exchanges: "Iterable[Exchange]", out: str) -> "Iterator[Exchange]":
    """Leave out the bundle that is about to be replaced: it would hold itself."""
    target = Path(os.path.realpath(out))
    for exchange in exchanges:
        if exchange.payload == target:
            _tell(f"left out {exchange.url}, which is the bundle that is written")
        else:
            yield exchange


def _with_fields(exchanges: "Iterable[Exchange]", added: dict[str, str]) -> "Iterator[Exchange]":
    from msgspec.structs import replace

    for exchange in exchanges:
        yield replace(exchange, headers={**exchange.headers, **added})


def _add_all(writer: "BundleWriter", exchanges: "Iterable[Exchange]") -> int:
    """Add the exchanges, and give how many there were."""
    count = 0
    with progress("collecting", None) as advance:
        for exchange in exchanges:
            writer.add_exchange(exchange)
            count += 1
            advance(1)
    return count
