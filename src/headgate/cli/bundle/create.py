"""`headgate bundle create`: a bundle from a directory, a HAR or a list of URLs; `convert`: one from a bundle."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headgate.cli.bundle.output import NEW_OUT, OUT, output_target, progress_bar
from headgate.cli.bundle.source_options import BundleSource, absolute, with_source
from headgate.cli.output import exit_with_failure, format_count, format_size, printable, progress
from headgate.cli.params import Parsed, header_option, identity_option, misuse_if
from headgate.errors import ConfigurationError, fail_if
from headgate.http.fields import join_fields

if TYPE_CHECKING:
    from headgate.advice import AgentIdentity
    from headgate.bundle.files.atomic_file import Target
    from headgate.bundle.model import Exchange, Version


class _Source(NamedTuple):
    """The exchanges, and what is known about them before the first."""

    name: str
    exchanges: "Iterable[Exchange]"
    primary_url: str | None = None
    manifest_url: str | None = None
    has_primary: bool = True
    """Whether the primary URL is that of an exchange."""
    failed: Callable[[], int] = int
    """Returns how many exchanges could not be collected so far."""


def _parse_base_url(text: str) -> str:
    from headgate.bundle.sources.directory import check_base_url

    return check_base_url(text)


@click.command(short_help="Create a bundle from files, HAR or URLs.")
@click.option("--dir", "directory", metavar="DIR", help="Directory with the files of a site; needs --base-url.")
@click.option(
    "--base-url",
    type=Parsed("url", _parse_base_url),
    metavar="URL",
    help="URL of the directory, such as https://example.com/.",
)
@click.option("--har", metavar="FILE", help="HAR file with content, as browsers save it; - reads standard input.")
@click.option("--urls", metavar="FILE", help="File with one URL per line, which are fetched; - reads standard input.")
@click.option(
    "--version",
    type=click.Choice(["b1", "b2", "draft-01"]),
    default="b2",
    show_default=True,
    help="Version of the format.",
)
@click.option(
    "--primary-url",
    metavar="URL",
    help="URL of the main resource; may be relative to the base URL.  [default: the base URL, or the first URL]",
)
@click.option(
    "--manifest-url",
    metavar="URL",
    help="URL of the manifest; may be relative to the base URL.  [default: that in the directory]",
)
@header_option("Header field to set in each response; repeatable.")
@identity_option(default=None, purpose="With --urls: ")
@NEW_OUT
@click.argument("words", nargs=-1, metavar="")
def create(
    *,
    words: tuple[str, ...],
    version: "Version",
    primary_url: str | None,
    manifest_url: str | None,
    fields: tuple[tuple[str, str], ...],
    identity: "AgentIdentity | None",
    out: str,
    **sources: str | None,
) -> None:
    """Create a bundle from a directory, a HAR or a list of URLs.

    The same input gives the same bytes. Today's tools read b2. b1 and draft-01 have variants and signatures of
    responses, and need a manifest: manifest.webmanifest or manifest.json in a directory is found. What is left out of
    the bundle is printed on stderr. With --urls a response such as a 404 is left out and makes the exit code 1; with
    --har it is kept.

    URLs are fetched one at a time, as each origin's traffic advice allows. A request that fails is repeated twice,
    after the time in Retry-After if that is within a minute.

    \b
    headgate bundle create --dir site --base-url https://example.com/ -o site.wbn
    headgate bundle create --har page.har -H 'Cache-Control: max-age=600' -o page.wbn
    headgate bundle create --urls urls.txt -o pages.wbn
    """
    if words:
        raise click.UsageError(
            f"unexpected argument {words[0]!r}; name the source with an option, such as --dir {words[0]} --base-url URL"
        )
    target = output_target(out)
    base_url = sources["base_url"]
    primary_url, manifest_url = (url and absolute(url, base_url) for url in (primary_url, manifest_url))
    source = _source(out, sources, primary_url, identity)
    first, exchanges = _with_first_url(source.exchanges)
    manifest = manifest_url or _default_manifest(source, version)
    exchanges = _with_fields(exchanges, join_fields(fields)) if fields else exchanges
    primary = primary_url or _default_primary(source, first, version)
    options = {"version": version, "primary_url": primary, "manifest_url": manifest}
    count, length = _write(target, out, exchanges, options)
    click.echo(f"{printable(out)}: {format_count(count, 'response')}, {format_size(length)}, {version}", err=True)
    if source.failed():
        exit_with_failure()


def _write(
    target: "Target", out: str, exchanges: "Iterable[Exchange]", options: "Mapping[str, Any]"
) -> tuple[int, int]:
    """Write the bundle; return the number of responses, and the length in bytes."""
    from headgate.bundle import BundleWriter

    with progress_bar("writing") as on_progress:
        writer = BundleWriter(target, progress=on_progress, **options)
        count = 0
        with progress("collecting", None) as advance:
            for exchange in exchanges:
                writer.add_exchange(exchange)
                count += 1
                advance(1)
        warnings = writer.remarks()
        writer.close()
    print_warnings(out, warnings)
    return count, writer.length


def _source(
    out: str, named: dict[str, str | None], primary_url: str | None, identity: "AgentIdentity | None"
) -> _Source:
    """Open the source that was named; exactly one is allowed."""
    base_url = named.pop("base_url")
    given = {name: value for name, value in named.items() if value is not None}
    misuse_if(len(given) != 1, "name one source: --dir DIR --base-url URL, --har FILE or --urls FILE")
    ((kind, value),) = given.items()
    if (kind == "directory") != (base_url is not None):
        fault = "--dir needs --base-url, the URL of the directory"
        raise click.UsageError(fault if base_url is None else "--base-url is for --dir only")
    if kind == "urls":
        return _urls(value, identity)
    misuse_if(identity is not None, "--identity is for --urls only")
    return _har(value) if kind == "har" else _directory(value, base_url or "", primary_url, out)


def _default_primary(source: _Source, first: str, version: "Version") -> str | None:
    """Return the default primary URL; in b2 it must be in the bundle."""
    return (source.primary_url or first) if source.has_primary or version != "b2" else None


def _default_manifest(source: _Source, version: "Version") -> str | None:
    """Return the manifest that the source has; b2 needs none."""
    if version == "b2":
        return None
    fail_if(
        source.manifest_url is None,
        f"{source.name}: no manifest found; a {version} bundle needs one: use --manifest-url, or write b2",
    )
    return source.manifest_url


def _directory(name: str, base_url: str, primary_url: str | None, out: str) -> _Source:
    from headgate.bundle.sources import directory, find_manifest

    root = Path(name)
    exchanges = _without(directory(root, base_url, primary_url=primary_url, tell=_print_message), out)
    manifest = find_manifest(root, base_url)
    return _Source(name, exchanges, base_url, manifest, has_primary=(root / "index.html").is_file())


def _har(name: str) -> _Source:
    from headgate.bundle.sources import har

    return _Source(name, har(Path("/dev/stdin" if name == "-" else name), tell=_print_message))


def _urls(name: str, identity: "AgentIdentity | None") -> _Source:
    from headgate.agent.bundle import collect, read_url_list

    fail_if(
        name.startswith(("http://", "https://")),
        f"--urls takes a file with one URL per line, or - for standard input; got {printable(name)}",
    )
    urls = read_url_list(Path("/dev/stdin"), name="standard input") if name == "-" else read_url_list(Path(name))
    collection = collect(urls, identity=identity, tell=_print_message)
    return _Source(name, collection, failed=lambda: collection.failed)


def _print_message(sentence: str) -> None:
    click.echo(f"headgate: {printable(sentence)}", err=True)


def _with_first_url(exchanges: "Iterable[Exchange]") -> "tuple[str, Iterator[Exchange]]":
    """Return the URL of the first exchange, and all exchanges; raises `ConfigurationError` if there are none."""
    remaining = iter(exchanges)
    first = next(remaining, None)
    if first is None:
        raise ConfigurationError("the source has no exchanges; no bundle is written")
    return first.url, itertools.chain((first,), remaining)


def _without(exchanges: "Iterable[Exchange]", out: str) -> "Iterator[Exchange]":
    """Leave out the output file, which would contain itself."""
    target = os.path.realpath(out)
    for exchange in exchanges:
        if getattr(exchange.payload, "path", None) == target:
            _print_message(f"left out {exchange.url}: it is the output file")
        else:
            yield exchange


def _with_fields(exchanges: "Iterable[Exchange]", added: dict[str, str]) -> "Iterator[Exchange]":
    from msgspec.structs import replace

    for exchange in exchanges:
        yield replace(exchange, headers={**exchange.headers, **added})


@click.command(short_help="Convert a bundle to another version of the format.")
@with_source
@click.option("--version", type=click.Choice(["b1", "b2", "draft-01"]), required=True, help="Target version.")
@click.option("--primary-url", metavar="URL", help="URL of the main resource.  [default: that of the input]")
@click.option("--manifest-url", metavar="URL", help="URL of the manifest; may be relative to the main resource.")
@OUT
def convert(
    *,
    source: BundleSource,
    version: "Version",
    primary_url: str | None,
    manifest_url: str | None,
    out: str,
) -> None:
    """Convert a bundle to another version of the format.

    Responses are copied byte for byte. Signatures of responses stay valid between b1 and draft-01, and are left out of
    b2. A bundle with variants is not converted to b2, which lacks them. b1 and draft-01 need a primary URL, a manifest
    and absolute URLs: --base-url resolves the relative ones of a b2. An integrity block is left out, since it signs
    other bytes.

    \b
    headgate bundle convert --profile compat old.wbn --version b2 -o new.wbn
    headgate bundle convert new.wbn --version b1 --manifest-url https://example.com/manifest.json -o old.wbn
    """
    from headgate.bundle import convert as convert_bundle

    with source.opened() as bundle, progress_bar("converting") as progress:
        primary = primary_url and absolute(primary_url, bundle.metadata.primary_url)
        base_url = primary or bundle.metadata.primary_url
        warnings = convert_bundle(
            bundle,
            output_target(out),
            version=version,
            primary_url=primary,
            manifest_url=manifest_url and absolute(manifest_url, base_url),
            progress=progress,
        )
    print_warnings(out, warnings)


def print_warnings(out: str, warnings: Iterable[str]) -> None:
    """Print warnings about a bundle that was written on stderr."""
    for sentence in warnings:
        click.echo(f"{printable(out)}: {printable(sentence)}", err=True)
