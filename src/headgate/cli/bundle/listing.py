"""`headgate bundle list`: one line for each response, printed as it is read."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from headgate.cli.bundle.error_output import OutputLimit, error_fields
from headgate.cli.bundle.output import payload_pieces
from headgate.cli.bundle.responses import iterate_responses
from headgate.cli.bundle.source_options import BundleSource, with_source
from headgate.cli.output import (
    exit_with_failure,
    format_count,
    format_size,
    json_line,
    print_bytes,
    print_in_batches,
    printable,
    style,
)
from headgate.errors import ResponseError

if TYPE_CHECKING:
    from headgate.bundle.model import Location, StoredExchange


_DIGEST_WIDTH = 64

_Hasher: TypeAlias = "Callable[[Location, memoryview], str]"


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
    batch = {"size": 0} if digest else {}  # a digest may take a while, so each line is printed at once
    with source.opened(as_json=as_json) as bundle:
        if digest:
            from headgate.bundle.reading.overlap import reject_overlapping_responses

            reject_overlapping_responses(bundle)
        listing = _Listing(iterate_responses(bundle), OutputLimit(bundle.size), _hasher() if digest else None)
        if as_json:
            print_in_batches(listing.objects(), print_bytes, **batch)
        else:
            click.echo(style(_row("status", "size", "type", "URL", "sha256" if digest else None), bold=True))
            print_in_batches(listing.rows(), partial(click.echo, nl=False), **batch)
    if not as_json:
        responses, payloads = format_count(listing.total, "response"), format_size(listing.size)
        click.echo(f"{responses}, {listing.refused} refused, {payloads} of payloads", err=True)
    if listing.refused:
        exit_with_failure()


class _Listing:
    """The lines of the list, and the numbers of responses."""

    def __init__(self, responses: "Iterable[StoredExchange]", limit: OutputLimit, hasher: "_Hasher | None") -> None:
        self.refused = self.total = self.size = 0
        self._responses = responses
        self._limit = limit
        self._hasher = hasher

    def objects(self) -> Iterator[bytes]:
        """Yield a JSON object for each response; that of a malformed one has the error and its offset."""
        for found in self._counted():
            url, key, location, response = found.url, found.variant_key, found.location, found.response
            fields: dict[str, Any] = {"url": url, "variant_key": key}
            fields |= {"offset": location.offset, "length": location.length}
            if isinstance(response, ResponseError):
                fields = error_fields(response) | {"error_offset": response.offset} | fields
            else:
                fields |= {
                    "status": response.status,
                    "headers": response.stored_headers,
                    "payload_length": len(response.payload),
                    "payload_sha256": self._hasher(location, response.payload) if self._hasher else None,
                }
            yield self._limit.take(json_line(fields))

    def rows(self) -> Iterator[str]:
        """Yield a row for each response."""
        take = self._limit.take
        for found in self._counted():
            url, key, location, response = found.url, found.variant_key, found.location, found.response
            target = printable(url) if key is None else f"{printable(url)}  [{printable(key)}]"
            digest = None if self._hasher is None else ""
            if isinstance(response, ResponseError):
                reason = printable(f"{target}: {response.reason} at byte {response.offset} ({response.step})")
                yield take(style(_row("refused", "", "", reason, digest), fg="red") + "\n")
                continue
            if self._hasher is not None:
                digest = self._hasher(location, response.payload)
            media_type = printable(response.stored_headers.get("content-type", "-").partition(";")[0].strip())
            yield take(
                _row(str(response.status), format_size(len(response.payload)), media_type, target, digest) + "\n"
            )

    def _counted(self) -> "Iterator[StoredExchange]":
        for found in self._responses:
            self.total += 1
            if isinstance(found.response, ResponseError):
                self.refused += 1
            else:
                self.size += len(found.response.payload)
            yield found


def _hasher() -> _Hasher:
    """Return a function for the SHA-256 of a payload, computed once for each location."""
    from hashlib import sha256

    known: dict[Location, str] = {}

    def digest(location: "Location", payload: memoryview) -> str:
        if location not in known:
            state = sha256()
            for piece in payload_pieces(payload):
                state.update(piece)
            known[location] = state.hexdigest()
        return known[location]

    return digest


def _row(status: str, size: str, media_type: str, target: str, digest: str | None) -> str:
    """Return a row of the table; columns have fixed widths, since rows are printed as they are read."""
    first = "" if digest is None else f"{digest:<{_DIGEST_WIDTH}}  "
    return f"{first}{status:>7}  {size:>9}  {media_type:<28}  {target}"
