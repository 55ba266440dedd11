"""`headgate bundle list`: every response, a line each, as soon as it has been read."""

import sys
from typing import TYPE_CHECKING, Any

import click

from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.bundle.output import slices
from headgate.cli.bundle.showing import Allowance, told
from headgate.cli.bundle.walking import Found, walk
from headgate.cli.printing import counted, end_with_no, json_line, size_of, styled
from headgate.cli.terminal import harmless
from headgate.errors import ResponseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.bundle.metadata import Location

__all__ = ["list_responses"]

_ROW = "{:>7}  {:>9}  {:<28}  {}"
_DIGEST = 64


@click.command("list", short_help="Every response: URL, status, headers, where it is.")
@reads
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, one line a response.")
@click.option("--digest", is_flag=True, help="Also the SHA-256 of each payload.")
def list_responses(*, source: Reading, as_json: bool, digest: bool) -> None:
    """List every response: URL, status, headers, where it is.

    A response that is refused does not hide the others: its line says why, and the exit code is 1. A URL with variants
    has a line for each variant key, in the order of the index. There are no digests of responses inside one another.

    \b
    headgate bundle list site.wbn
    headgate bundle list --json --digest site.wbn | jq -r 'select(.error).url'
    """
    refused = total = size = 0
    hashed = _hasher() if digest else None
    with source.opened(as_json=as_json) as bundle:
        allowance = Allowance(bundle.size)
        if digest:
            from headgate.bundle.extent import check_extent

            check_extent(bundle)
        if not as_json:
            click.echo(styled(_row("status", "size", "type", "URL", "sha256" if digest else None), bold=True))
        for found in walk(bundle):
            total += 1
            fields = _fields(found, hashed)
            if "error" in fields:
                refused += 1
            else:
                size += fields["payload_length"]
            if as_json:
                sys.stdout.buffer.write(allowance.take(json_line(fields)))
            else:
                click.echo(allowance.take(_line(fields, with_digest=digest)))
    if not as_json:
        click.echo(f"{counted(total, 'response')}, {refused} refused, {size_of(size)} of payloads", err=True)
    if refused:
        end_with_no()


def _fields(found: Found, hashed: "Callable[[Location, memoryview], str] | None") -> dict[str, Any]:
    """Give what `--json` prints of one response; of a refused one, `error_offset` is where in the file that is."""
    url, key, location, response = found
    fields = {"url": url, "variant_key": key, "offset": location.offset, "length": location.length}
    if isinstance(response, ResponseError):
        return told(response) | {"error_offset": response.offset} | fields
    return fields | {
        "status": response.status,
        "headers": response.stored_headers,
        "payload_length": len(response.payload),
        "payload_sha256": hashed(location, response.payload) if hashed else None,
    }


def _hasher() -> "Callable[[Location, memoryview], str]":
    """Give a SHA-256 that remembers the last location: many keys may share a large payload."""
    from hashlib import sha256

    known: dict[Location, str] = {}

    def digest(location: "Location", payload: memoryview) -> str:
        if location not in known:
            state = sha256()
            for piece in slices(payload):
                state.update(piece)
            known[location] = state.hexdigest()
        return known[location]

    return digest


def _line(fields: dict[str, Any], *, with_digest: bool) -> str:
    key = f"  [{harmless(fields['variant_key'])}]" if fields["variant_key"] is not None else ""
    target = harmless(fields["url"]) + key
    if "error" in fields:
        why = harmless(f"{target}: {fields['message']} at byte {fields['error_offset']} ({fields['step']})")
        return styled(_row("refused", "", "", why, "" if with_digest else None), fg="red")
    media_type = harmless(fields["headers"].get("content-type", "-").partition(";")[0].strip())
    digest = fields["payload_sha256"] if with_digest else None
    return _row(str(fields["status"]), size_of(fields["payload_length"]), media_type, target, digest)


def _row(status: str, size: str, media_type: str, target: str, digest: str | None) -> str:
    """Give a row of the table; the columns are fixed, since rows are printed as they are read."""
    first = "" if digest is None else f"{digest:<{_DIGEST}}  "
    return first + _ROW.format(status, size, media_type, target)
