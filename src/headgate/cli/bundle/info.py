"""`headgate bundle info`: version, URLs and sections of a bundle."""

from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import format_size, print_json, printable, style

if TYPE_CHECKING:
    from headgate.agent.bundle import RangeBundle
    from headgate.bundle.model import Metadata
    from headgate.bundle.reading.reader import Bundle


@click.command(short_help="Show version, URLs and sections of a bundle.")
@with_source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(*, source: BundleSource, as_json: bool) -> None:
    """Show version, URLs and sections of a bundle.

    Responses are not read, so this also works for a bundle that is cut inside them. Of a bundle at a URL only the
    metadata is fetched, with range requests.

    \b
    headgate bundle info site.wbn
    headgate bundle info --json --profile compat site.wbn
    headgate bundle info --from-end installer.exe
    headgate bundle info https://example.com/site.wbn
    """
    with source.opened_by_ranges(as_json=as_json) as bundle:
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


def _lines(name: str, bundle: "Bundle | RangeBundle") -> list[str]:
    """Return the result as text."""
    metadata = bundle.metadata
    lines = [style(f"{name}: a {metadata.version} bundle of {format_size(metadata.length)}", bold=True)]
    block = bundle.integrity_block.length if bundle.integrity_block else 0
    missing = metadata.length - bundle.size
    rows = [
        ("primary URL", metadata.primary_url or "none"),
        ("manifest URL", metadata.manifest_url or "none"),
        ("requests", str(len(metadata.requests))),
        ("authorities", str(len(metadata.authorities))),
        ("vouched subsets", str(len(metadata.vouched_subsets))),
        ("integrity block", f"{block} bytes, before the bundle" if block else "none"),
        *([("missing", f"{missing} bytes at the end")] if missing > 0 else []),
    ]
    lines += [f"{what:<16} {printable(value)}" for what, value in rows]
    names = [printable(section.name) for section in metadata.sections]
    name_width, number_width = max(7, *map(len, names)), max(6, len(str(metadata.length)))
    lines += [
        "",
        style(f"{'section':<{name_width}}  {'offset':>{number_width}}  {'length':>{number_width}}", bold=True),
    ]
    for label, section in zip(names, metadata.sections, strict=True):
        lines.append(f"{label:<{name_width}}  {section.offset:>{number_width}}  {section.length:>{number_width}}")
    return lines
