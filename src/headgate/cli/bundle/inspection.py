"""`headgate bundle info`, `list` and `check`: print what is in a bundle, and what is wrong with it.

`list` prints the line of a response as soon as it is read.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from headgate.cli.bundle.output import OutputLimit, error_fields, iterate_responses
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import (
    exit_with_failure,
    format_count,
    format_size,
    json_line,
    print_bytes,
    print_json,
    printable,
    report_read_errors,
    style,
)
from headgate.errors import ResponseError

if TYPE_CHECKING:
    from headgate.bundle.check import BundleFinding
    from headgate.bundle.format.integrity_block import IntegrityBlock
    from headgate.bundle.model import Location, Metadata
    from headgate.bundle.reader import Bundle
    from headgate.cli.bundle.output import Found

_DIGEST_WIDTH = 64
_Hasher: TypeAlias = "Callable[[Location], str]"


@click.command(short_help="Show version, URLs and sections of a bundle.")
@with_source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(*, source: BundleSource, as_json: bool) -> None:
    """Show version, URLs and sections of a bundle.

    Responses are not read, so this also works for a bundle that is cut inside them.

    \b
    headgate bundle info site.wbn
    headgate bundle info --json --profile compat site.wbn
    headgate bundle info --from-end installer.exe
    headgate bundle info https://example.com/site.wbn
    """
    with source.opened(as_json=as_json) as bundle:
        if as_json:
            print_json(_info_fields(bundle.metadata, bundle.integrity_block))
        else:
            click.echo("\n".join(_info_lines(source.name, bundle)))


def _info_fields(metadata: "Metadata", block: "IntegrityBlock | None") -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = {
        "version": metadata.version,
        "primary_url": metadata.primary_url,
        "manifest_url": metadata.manifest_url,
        "requests": len(metadata.requests),
        "sections": msgspec.to_builtins(metadata.sections),
        "length": metadata.length,
        "authorities": len(metadata.authorities),
        "vouched_subsets": len(metadata.vouched_subsets),
    }
    if block is not None:
        fields["integrity_block"] = {
            "web_bundle_id": block.web_bundle_id,
            "version": block.version,
            "length": block.length,
            "signatures": [entry.key_id for entry in block.signatures],
        }
    return fields


def _info_lines(name: str, bundle: "Bundle") -> list[str]:
    """Return the result as text."""
    metadata = bundle.metadata
    lines = [style(f"{name}: a {metadata.version} bundle of {format_size(metadata.length)}", bold=True)]
    block = bundle.integrity_block
    missing = metadata.length - bundle.size
    rows = [
        ("primary URL", metadata.primary_url or "none"),
        ("manifest URL", metadata.manifest_url or "none"),
        ("URLs", str(len(metadata.requests))),
        ("authorities", str(len(metadata.authorities))),
        ("vouched subsets", str(len(metadata.vouched_subsets))),
        ("integrity block", f"{block.length} bytes, before the bundle" if block else "none"),
        *([("web bundle id", block.web_bundle_id or "none")] if block else []),
        *[("signed by", entry.key_id or "an unknown kind of key") for entry in (block.signatures if block else ())],
        *([("missing", f"{missing} bytes at the end")] if missing > 0 else []),
    ]
    lines += [f"{what:<16} {printable(value)}" for what, value in rows]
    table = [("section", "offset", "length")]
    table += [(printable(one.name), str(one.offset), str(one.length)) for one in metadata.sections]
    name_width, number_width = max(len(row[0]) for row in table), max(6, len(str(metadata.length)))
    header, *rest = (f"{name:<{name_width}}  {at:>{number_width}}  {size:>{number_width}}" for name, at, size in table)
    return [*lines, "", style(header, bold=True), *rest]


@click.command("list", short_help="List every response: URL, status, headers, location.")
@with_source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line and response.")
@click.option("--digest", is_flag=True, help="Print the SHA-256 of each payload.")
def list_responses(*, source: BundleSource, as_json: bool, digest: bool) -> None:
    """List every response: URL, status, headers, location.

    The line of a malformed response has the error, and the exit code is 1. A URL with variants has a line for each
    variant key, in the order of the index. --digest refuses a bundle whose responses overlap.

    \b
    headgate bundle list site.wbn
    headgate bundle list --json --digest site.wbn | jq -r 'select(.error).url'
    """
    with source.opened(as_json=as_json) as bundle:
        if digest:
            from headgate.bundle.reader import reject_overlapping_responses

            reject_overlapping_responses(bundle)
        listing = _Listing(bundle, _hasher(bundle) if digest else None)
        if not as_json:
            click.echo(style(_row("status", "size", "type", "URL", "sha256" if digest else None), bold=True))
        write: Callable[[Any], object] = print_bytes if as_json else sys.stdout.write
        for line in listing.lines(as_json=as_json):
            write(line)
            if digest:  # it may take a while
                sys.stdout.flush()
    if not as_json:
        responses, payloads = format_count(listing.total, "response"), format_size(listing.size)
        click.echo(f"{responses}, {listing.refused} refused, {payloads} of payloads", err=True)
    if listing.refused:
        exit_with_failure()


class _Listing:
    """The lines of the list, and the numbers of responses."""

    def __init__(self, bundle: "Bundle", hasher: "_Hasher | None") -> None:
        self.refused = self.total = self.size = 0
        self._responses = iterate_responses(bundle)
        self._limit = OutputLimit(bundle.size)
        self._hasher = hasher

    def lines(self, *, as_json: bool) -> Iterator[str | bytes]:
        """Yield the line of each response."""
        for found in self._responses:
            self.total += 1
            if isinstance(found[3], ResponseError):
                self.refused += 1
            else:
                self.size += found[3].payload.length
            yield self._limit.take(self.json_line(found)) if as_json else self._limit.take(self.row(found))

    def json_line(self, found: "Found") -> bytes:
        """Return a JSON object; that of a malformed response has the error and its offset."""
        url, key, location, response = found
        fields = {"url": url, "variant_key": key, "offset": location.offset, "length": location.length}
        if isinstance(response, ResponseError):
            return json_line(error_fields(response) | {"error_offset": response.offset} | fields)
        return json_line(
            fields
            | {
                "status": response.status,
                "headers": response.stored_headers,
                "payload_length": response.payload.length,
                "payload_sha256": self._hasher(response.payload) if self._hasher else None,
            }
        )

    def row(self, found: "Found") -> str:
        """Return a row of the table."""
        url, key, _, response = found
        target = printable(url) if key is None else f"{printable(url)}  [{printable(key)}]"
        if isinstance(response, ResponseError):
            reason = printable(f"{target}: {response.reason} at byte {response.offset} ({response.step})")
            return style(_row("refused", "", "", reason, None if self._hasher is None else ""), fg="red") + "\n"
        digest = None if self._hasher is None else self._hasher(response.payload)
        media_type = printable(response.stored_headers.get("content-type", "-").partition(";")[0].strip())
        return _row(str(response.status), format_size(response.payload.length), media_type, target, digest) + "\n"


def _hasher(bundle: "Bundle") -> _Hasher:
    """Return a function for the SHA-256 of a payload, computed once for each location."""
    from hashlib import sha256

    @cache
    def digest(payload: "Location") -> str:
        state = sha256()
        for piece in bundle.pieces(payload):
            state.update(piece)
        return state.hexdigest()

    return digest


def _row(status: str, size: str, media_type: str, target: str, digest: str | None) -> str:
    """Return a row of the table; columns have fixed widths, since rows are printed as they are read."""
    first = "" if digest is None else f"{digest:<{_DIGEST_WIDTH}}  "
    return f"{first}{status:>7}  {size:>9}  {media_type:<28}  {target}"


@click.command(short_help="Check every part of a bundle: errors and warnings.")
@with_source
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(*, source: BundleSource, as_json: bool) -> None:
    """Check every part of a bundle: errors and warnings.

    An error is what readers refuse: the first in each part, which are the preamble, the section lengths, each section
    and each response. A warning is what is allowed but unwise; with --profile compat also what that profile accepts.
    The exit code is 1 if there is an error.

    \b
    headgate bundle check site.wbn
    headgate bundle check --json site.wbn | jq -r '.errors[].code'
    """
    import msgspec

    from headgate.bundle.check import check_bundle

    with report_read_errors(source.file):
        content, options = source.read()
        report = check_bundle(content, **options)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        lines = [_finding_line(source.name, one, style("error", fg="red", bold=True)) for one in report.errors]
        lines += [_finding_line(source.name, one, style("warning", fg="yellow", bold=True)) for one in report.warnings]
        click.echo("".join(lines), nl=False)
        counts = f"{format_count(len(report.errors), 'error')}, {format_count(len(report.warnings), 'warning')}"
        click.echo(f"{source.name}: {counts}", err=True)
    if report.errors:
        exit_with_failure()


def _finding_line(name: str, finding: "BundleFinding", kind: str) -> str:
    """Return a finding in the form of compilers, which editors recognize."""
    place = "" if finding.offset is None else f":{finding.offset}"
    step = f" ({finding.step})" if finding.step else ""
    return f"{name}{place}: {kind}: {printable(finding.message)}{step} [{finding.code}]\n"
