"""`headgate bundle convert` and `rebase`: the same exchanges in another version of the format, or at another origin."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.opening import Reading, absolute, reads
from headgate.cli.bundle.output import OUT, meter, target_of
from headgate.cli.terminal import harmless

if TYPE_CHECKING:
    from headgate.bundle.model import Version

__all__ = ["convert", "rebase"]


@click.command(short_help="The same exchanges in another version of the format.")
@reads
@click.option("--version", type=click.Choice(["b1", "b2", "draft-01"]), required=True, help="To convert to.")
@click.option("--primary-url", metavar="U", help="The main resource, instead of the one FILE names.")
@click.option("--manifest-url", metavar="U", help="The manifest; it may be relative to the main resource.")
@OUT
def convert(
    *,
    source: Reading,
    version: "Version",
    primary_url: str | None,
    manifest_url: str | None,
    out: str,
) -> None:
    """Write the same exchanges in another version of the format.

    Responses are copied byte for byte. Signatures of responses survive between b1 and draft-01, and are left out of
    b2, which has no variants either. b1 and draft-01 need a primary URL, a manifest and absolute URLs: --base-url
    resolves those of a b2 that has relative ones. An integrity block is left out: the bytes it signs are others now.

    \b
    headgate bundle convert --profile compat old.wbn --version b2 -o new.wbn
    headgate bundle convert new.wbn --version b1 --manifest-url https://example.com/manifest.json -o old.wbn
    """
    from headgate.bundle.conversion import convert as converted

    with source.opened() as bundle, meter("converting", bundle.raw) as progress:
        primary = primary_url and absolute(primary_url, bundle.metadata.primary_url)
        base_url = primary or bundle.metadata.primary_url
        remarks = converted(
            bundle,
            target_of(out),
            version=version,
            primary_url=primary,
            manifest_url=manifest_url and absolute(manifest_url, base_url),
            progress=progress,
        )
    remark(out, remarks)


@click.command(short_help="The same exchanges at another origin.")
@reads
@click.option("--to", metavar="URL", required=True, help="The origin to move to, such as https://staging.example.com.")
@click.option("--of", metavar="URL", help="The origin whose URLs move.  [default: the primary URL's]")
@OUT
def rebase(*, source: Reading, to: str, of: str | None, out: str) -> None:
    """Move the exchanges to another origin: a copy of a site for a test, or of a test for the site.

    The index, the primary URL, the manifest URL and redirects follow; what payloads say of the old origin stays.
    Signatures name URLs, and are left out.

    \b
    headgate bundle rebase site.wbn --to http://127.0.0.1:8000 -o local.wbn
    """
    from headgate.bundle.conversion import rebase as rebased

    with source.opened() as bundle, meter("writing", bundle.raw) as progress:
        remarks = rebased(bundle, target_of(out), to=to, of=of, progress=progress)
    remark(out, remarks)


def remark(out: str, remarks: Iterable[str]) -> None:
    """Say on stderr what there is to say of a bundle that has been written."""
    for sentence in remarks:
        click.echo(f"{harmless(out)}: {harmless(sentence)}", err=True)
