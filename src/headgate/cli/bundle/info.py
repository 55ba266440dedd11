"""`headgate bundle info`: what a bundle says of itself before its first response."""

from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.printing import print_json, size_of, styled
from headgate.cli.terminal import harmless

if TYPE_CHECKING:
    from headgate.bundle.model import Metadata
    from headgate.bundle.reading.reader import Bundle

__all__ = ["info"]


@click.command(short_help="What a bundle says of itself: version, URLs, sections.")
@reads
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(*, source: Reading, as_json: bool) -> None:
    """Say what a bundle says of itself: version, URLs, sections.

    Reads nothing of the responses, so that a bundle cut inside them still has an answer.

    \b
    headgate bundle info site.wbn
    headgate bundle info --json --profile compat site.wbn
    headgate bundle info --from-end installer.exe
    """
    with source.opened(as_json=as_json) as bundle:
        if as_json:
            print_json(_fields(bundle.metadata))
        else:
            click.echo("\n".join(_lines(source.name, bundle)))


def _fields(metadata: "Metadata") -> dict[str, Any]:
    return {
        "version": metadata.version,
        "primary_url": metadata.primary_url,
        "manifest_url": metadata.manifest_url,
        "requests": len(metadata.requests),
        "sections": [
            {"name": section.name, "offset": section.offset, "length": section.length} for section in metadata.sections
        ],
        "length": metadata.length,
        "authorities": len(metadata.authorities),
        "vouched_subsets": len(metadata.vouched_subsets),
    }


def _lines(name: str, bundle: "Bundle") -> list[str]:
    """Write the answer for people."""
    metadata = bundle.metadata
    lines = [styled(f"{name}: a {metadata.version} bundle of {size_of(metadata.length)}", bold=True)]
    block = bundle.integrity_block.length if bundle.integrity_block else 0
    missing = metadata.length - len(bundle.raw)
    told = [
        ("primary URL", metadata.primary_url or "none"),
        ("manifest URL", metadata.manifest_url or "none"),
        ("requests", str(len(metadata.requests))),
        ("authorities", str(len(metadata.authorities))),
        ("vouched subsets", str(len(metadata.vouched_subsets))),
        ("integrity block", f"{block} bytes, before the bundle" if block else "none"),
        *([("missing", f"{missing} bytes: the file ends too early")] if missing > 0 else []),
    ]
    lines += [f"{what:<16} {harmless(value)}" for what, value in told]
    names = [harmless(section.name) for section in metadata.sections]
    wide, high = max(7, *map(len, names)), max(6, len(str(metadata.length)))
    lines += ["", styled(f"{'section':<{wide}}  {'offset':>{high}}  {'length':>{high}}", bold=True)]
    for label, section in zip(names, metadata.sections, strict=True):
        lines.append(f"{label:<{wide}}  {section.offset:>{high}}  {section.length:>{high}}")
    return lines
