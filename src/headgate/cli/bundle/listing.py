"""`headgate bundle list`: every response, a line each, as soon as it has been read."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from headgate.cli.bundle.opening import Reading, reads
from headgate.cli.bundle.output import slices
from headgate.cli.bundle.showing import Allowance, told
from headgate.cli.bundle.walking import Found, walk
from headgate.cli.printing import (
    counted,
    end_with_no,
    json_line,
    print_bytes,
    print_in_batches,
    size_of,
    styled,
)
from headgate.cli.terminal import harmless
from headgate.errors import ResponseError

if TYPE_CHECKING:
    from headgate.bundle.model import Location

__all__ = ["list_responses"]

_DIGEST = 64

_Hasher: TypeAlias = "Callable[[Location, memoryview], str]"


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
    batch = {"size": 0} if digest else {}  # each digest may take a while, and is shown when it is there
    with source.opened(as_json=as_json) as bundle:
        if digest:
            from headgate.bundle.reading.overlap import reject_overlapping_responses

            reject_overlapping_responses(bundle)
        listing = _Listing(walk(bundle), Allowance(bundle.size), _hasher() if digest else None)
        if as_json:
            print_in_batches(listing.objects(), print_bytes, **batch)
        else:
            click.echo(styled(_row("status", "size", "type", "URL", "sha256" if digest else None), bold=True))
            print_in_batches(listing.rows(), partial(click.echo, nl=False), **batch)
    if not as_json:
        counts = f"{counted(listing.total, 'response')}, {listing.refused} refused, {size_of(listing.size)} of payloads"
        click.echo(counts, err=True)
    if listing.refused:
        end_with_no()


class _Listing:
    """The lines of a list, and how many responses they are of."""

    def __init__(self, responses: Iterable[Found], allowance: Allowance, hasher: "_Hasher | None") -> None:
        self.refused = self.total = self.size = 0
        self._responses = responses
        self._allowance = allowance
        self._hasher = hasher

    def objects(self) -> Iterator[bytes]:
        """Yield a JSON object for each response; of a refused one, `error_offset` is where in the file that is."""
        for url, key, location, response in self._counted():
            fields: dict[str, Any] = {"url": url, "variant_key": key}
            fields |= {"offset": location.offset, "length": location.length}
            if isinstance(response, ResponseError):
                fields = told(response) | {"error_offset": response.offset} | fields
            else:
                fields |= {
                    "status": response.status,
                    "headers": response.stored_headers,
                    "payload_length": len(response.payload),
                    "payload_sha256": self._hasher(location, response.payload) if self._hasher else None,
                }
            yield self._allowance.take(json_line(fields))

    def rows(self) -> Iterator[str]:
        """Yield a row for each response."""
        take = self._allowance.take
        for url, key, location, response in self._counted():
            target = harmless(url) if key is None else f"{harmless(url)}  [{harmless(key)}]"
            digest = None if self._hasher is None else ""
            if isinstance(response, ResponseError):
                why = harmless(f"{target}: {response.reason} at byte {response.offset} ({response.step})")
                yield take(styled(_row("refused", "", "", why, digest), fg="red") + "\n")
                continue
            if self._hasher is not None:
                digest = self._hasher(location, response.payload)
            media_type = harmless(response.stored_headers.get("content-type", "-").partition(";")[0].strip())
            yield take(_row(str(response.status), size_of(len(response.payload)), media_type, target, digest) + "\n")

    def _counted(self) -> Iterator[Found]:
        for found in self._responses:
            self.total += 1
            if isinstance(found.response, ResponseError):
                self.refused += 1
            else:
                self.size += len(found.response.payload)
            yield found


def _hasher() -> _Hasher:
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


def _row(status: str, size: str, media_type: str, target: str, digest: str | None) -> str:
    """Give a row of the table; the columns are fixed, since rows are printed as they are read."""
    first = "" if digest is None else f"{digest:<{_DIGEST}}  "
    return f"{first}{status:>7}  {size:>9}  {media_type:<28}  {target}"
