"""`headgate bundle convert` and `rebase`: write a bundle in another version of the format, or for another origin."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.output import OUT, output_target, progress_bar
from headgate.cli.bundle.source_options import BundleSource, absolute, with_source
from headgate.cli.output import printable
from headgate.cli.params import Parsed

if TYPE_CHECKING:
    from headgate.bundle.model import Version


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
    b2, which has no variants either. b1 and draft-01 need a primary URL, a manifest and absolute URLs: --base-url
    resolves the relative ones of a b2. An integrity block is left out, since it signs other bytes.

    \b
    headgate bundle convert --profile compat old.wbn --version b2 -o new.wbn
    headgate bundle convert new.wbn --version b1 --manifest-url https://example.com/manifest.json -o old.wbn
    """
    from headgate.bundle import convert as convert_bundle

    with source.opened() as bundle, progress_bar("converting", bundle.raw) as progress:
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


def _parse_origin(text: str) -> str:
    from headgate.bundle.conversion import check_origin

    return check_origin(text)


_ORIGIN = Parsed("origin", _parse_origin)


@click.command(short_help="Move a bundle to another origin.")
@with_source
@click.option(
    "--to", type=_ORIGIN, metavar="ORIGIN", required=True, help="Target origin, such as https://staging.example.com."
)
@click.option(
    "--of", type=_ORIGIN, metavar="ORIGIN", help="Origin whose URLs are moved.  [default: that of the primary URL]"
)
@OUT
def rebase(*, source: BundleSource, to: str, of: str | None, out: str) -> None:
    """Move a bundle to another origin, such as that of a test server.

    The index, the primary URL, the manifest URL and redirects are changed; URLs in payloads stay as they are.
    Signatures sign URLs, and are left out.

    \b
    headgate bundle rebase site.wbn --to http://127.0.0.1:8000 -o local.wbn
    """
    from headgate.bundle import rebase as rebase_bundle

    with source.opened() as bundle, progress_bar("writing", bundle.raw) as progress:
        warnings = rebase_bundle(bundle, output_target(out), to=to, of=of, progress=progress)
    print_warnings(out, warnings)


def print_warnings(out: str, warnings: Iterable[str]) -> None:
    """Print warnings about a bundle that was written on stderr."""
    for sentence in warnings:
        click.echo(f"{printable(out)}: {printable(sentence)}", err=True)
