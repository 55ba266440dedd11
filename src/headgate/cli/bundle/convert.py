"""`headgate bundle convert`: write a bundle in another version of the format."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.output import OUT, output_target, progress_bar
from headgate.cli.bundle.source_options import BundleSource, absolute, with_source
from headgate.cli.output import printable

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
