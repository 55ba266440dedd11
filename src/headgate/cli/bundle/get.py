"""`headgate bundle get`: get one response from a bundle, reading no other."""

import sys
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.output import output_target
from headgate.cli.bundle.source_options import BundleSource, absolute, with_source
from headgate.cli.output import printable
from headgate.cli.params import header_option
from headgate.errors import HeadgateError, NotInBundle
from headgate.http.fields import join_fields

if TYPE_CHECKING:
    from headgate.bundle.model import Location
    from headgate.bundle.reader import Bundle, DecodedResponse


_MAX_SIMILAR = 3
_ANY_BASE = "https://relative.invalid/"
_INSPECTED_SIZE = 1024


@click.command(short_help="Get one response from a bundle.")
@with_source
@click.argument("url", metavar="URL")
@header_option("Request header field that chooses a variant; repeatable.")
@click.option("--variant-key", metavar="KEY", help="Get this variant, such as 'gzip;en', whatever -H says.")
@click.option(
    "-o", "--output", "out", metavar="FILE", default="", help="Output file for the payload.  [default: standard output]"
)
@click.option("--headers", "with_head", is_flag=True, help="Print status and headers first, on standard output.")
def get(
    *,
    source: BundleSource,
    url: str,
    fields: tuple[tuple[str, str], ...],
    variant_key: str | None,
    out: str,
    with_head: bool,
) -> None:
    """Get the payload of one response from a bundle.

    URL may be relative to the primary URL. Of several variants, the best for the Accept, Accept-Encoding and
    Accept-Language fields given with -H is chosen; without any, one without a content coding, or the first.
    --variant-key overrides -H. A signed payload is checked against its digest and decoded from mi-sha256-03.

    \b
    headgate bundle get site.wbn https://example.com/ > index.html
    headgate bundle get site.wbn /logo.png -o logo.png --headers
    headgate bundle get site.wbn / -H 'Accept-Language: fr' -H 'Accept-Encoding: br'
    headgate bundle get https://example.com/site.wbn /logo.png -o logo.png
    """
    from headgate.bundle.files.atomic_file import open_output

    target = output_target(out or "-")
    with source.opened() as bundle:
        wanted = _absolute(url, bundle)
        try:
            location = _locate(bundle, wanted, fields, variant_key)
        except NotInBundle as error:
            raise HeadgateError(f"{source.name}: {printable(str(error))}{_similar_urls(wanted, bundle)}") from None
        found = bundle.decode(location)
        if not out:
            _check_terminal(found, url)
        if with_head:
            sys.stdout.buffer.write(_head(found))
            sys.stdout.buffer.flush()
        with open_output(target, found.length) as output:
            for piece in found.pieces(0, found.length):
                output.put(piece)


def _absolute(url: str, bundle: "Bundle") -> str:
    """Return the absolute URL, or the one of a bundle with relative URLs; one that cannot be resolved is not found."""
    from headgate.http.url import resolve, without_fragment

    target = without_fragment(absolute(url, bundle.metadata.primary_url))
    place = resolve(target, _ANY_BASE)
    return target if target in bundle else next((one for one in bundle if resolve(one, _ANY_BASE) == place), target)


def _locate(bundle: "Bundle", url: str, fields: Iterable[tuple[str, str]], variant_key: str | None) -> "Location":
    """Return the location of the requested response; raises `NotInBundle`."""
    from headgate.bundle.model import VariantSet
    from headgate.bundle.reader import locate, select_location

    metadata = bundle.metadata
    if variant_key is not None:
        return locate(metadata, url, variant_key)
    try:
        return select_location(metadata, url, join_fields(fields))
    except NotInBundle:
        entry = metadata.requests.get(url)
        if fields or not isinstance(entry, VariantSet):
            raise
    key = next(iter(entry.locations))
    click.echo(
        f"{printable(url)} has variants; got {printable(key)}, choose another with -H or --variant-key", err=True
    )
    return entry.locations[key]


def _similar_urls(url: str, bundle: "Bundle") -> str:
    """Return the URLs that are most similar to one that is not in the bundle, as the end of a message."""
    if url in bundle.metadata.requests:
        return ""

    def similarity(known: str) -> int:
        return min(_common_prefix(url, known) + _common_prefix(url[::-1], known[::-1]), len(url), len(known))

    similar = sorted(bundle.metadata.requests, key=similarity, reverse=True)[:_MAX_SIMILAR]
    return f"; similar: {' '.join(map(printable, similar))}" if similar else ""


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _check_terminal(response: "DecodedResponse", url: str) -> None:
    """Refuse to print binary data on a terminal."""
    if sys.stdout.isatty() and 0 in b"".join(response.pieces(0, _INSPECTED_SIZE)):
        raise HeadgateError(
            f"{printable(url)} is binary and standard output is a terminal; use -o FILE, or -o - to print it"
        )


def _head(response: "DecodedResponse") -> bytes:
    """Return status and headers in the form of curl -i."""
    from http import HTTPStatus

    phrase = HTTPStatus(response.status).phrase if response.status in set(HTTPStatus) else ""
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{name}: {value}" for name, value in response.headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
