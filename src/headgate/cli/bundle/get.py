"""`headgate bundle get`: one response out of a bundle of any size, for what that response costs."""

import sys
from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from headgate.cli.bundle.opening import Reading, absolute, reads
from headgate.cli.bundle.output import content, forget, target_of
from headgate.cli.params import header_option, join_fields
from headgate.cli.terminal import harmless
from headgate.errors import HeadgateError, NotInBundle

if TYPE_CHECKING:
    from headgate.bundle.model import Location
    from headgate.bundle.reading.mi_decoding import DecodedResponse
    from headgate.bundle.reading.reader import Bundle

__all__ = ["get"]

_NEAR = 3
_LOOKED_AT = 1024


@click.command(short_help="One response, out of a bundle of any size.")
@reads
@click.argument("url", metavar="URL")
@header_option("A field of the request, to choose a variant by; repeated: several.")
@click.option("--variant-key", metavar="K", help="This variant whatever -H says, such as 'gzip;en'.")
@click.option(
    "-o", "--output", "out", metavar="OUT", default="", help="For the payload; else, or as -, standard output."
)
@click.option("--headers", "with_head", is_flag=True, help="Print status and headers first; never into OUT.")
def get(
    *,
    source: Reading,
    url: str,
    fields: tuple[tuple[str, str], ...],
    variant_key: str | None,
    out: str,
    with_head: bool,
) -> None:
    """Get one response's payload, out of a bundle of any size.

    URL may be relative to the primary URL. Where it has variants, -H says what the request would: the best one for
    Accept, Accept-Encoding and Accept-Language is chosen. Without them it is the best for a request that says none of
    these, which is one without a content coding, or else the first. --variant-key overrules -H. What was signed is
    checked against its digest, and comes as it was before: without mi-sha256-03, in which signing stores it.

    \b
    headgate bundle get site.wbn https://example.com/ > index.html
    headgate bundle get site.wbn /logo.png -o logo.png --headers
    headgate bundle get site.wbn / -H 'Accept-Language: fr' -H 'Accept-Encoding: br'
    """
    from headgate.bundle.reading.mi_decoding import decode_response

    target_of(out or "-")
    with source.opened() as bundle:
        wanted = _absolute(url, bundle)
        try:
            location = _chosen(bundle, wanted, fields, variant_key)
        except NotInBundle as error:
            raise HeadgateError(f"{source.name}: {harmless(str(error))}{_near(wanted, bundle)}") from None
        found = decode_response(bundle, location, bundle.load(location), used=forget)
        if not out:
            _spare_the_terminal(found, url)
        if with_head:
            sys.stdout.buffer.write(_head(found))
            sys.stdout.buffer.flush()
        _write(found, out or "-")


def _absolute(url: str, bundle: "Bundle") -> str:
    """Give the URL meant; what cannot be resolved stays as it is, and is not found."""
    from headgate.http.url import without_fragment

    return without_fragment(absolute(url, bundle.metadata.primary_url))


def _chosen(bundle: "Bundle", url: str, fields: Iterable[tuple[str, str]], variant_key: str | None) -> "Location":
    """Give the location of the response that was asked for; raises `NotInBundle`."""
    from headgate.bundle.model import VariantSet
    from headgate.bundle.reading.lookup import locate, select_location

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
    click.echo(f"{harmless(url)} has variants, and this is {harmless(key)}; -H or --variant-key choose", err=True)
    return entry.locations[key]


def _near(url: str, bundle: "Bundle") -> str:
    """Name the URLs that begin and end most like one that is not there; nothing where it is there."""
    if url in bundle.metadata.requests:
        return ""

    def likeness(known: str) -> int:
        return min(_shared(url, known) + _shared(url[::-1], known[::-1]), len(url), len(known))

    near = sorted(bundle.metadata.requests, key=likeness, reverse=True)[:_NEAR]
    return f"; near it: {' '.join(map(harmless, near))}" if near else ""


def _shared(one: str, other: str) -> int:
    """Count the characters with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _spare_the_terminal(response: "DecodedResponse", url: str) -> None:
    """Refuse to print what would garble a terminal."""
    if sys.stdout.isatty() and 0 in b"".join(response.pieces(0, _LOOKED_AT)):
        raise HeadgateError(
            f"{harmless(url)} is binary, and this is a terminal; name a file with -o, or insist with -o -"
        )


def _head(response: "DecodedResponse") -> bytes:
    """Write status and headers as curl -i would."""
    from http import HTTPStatus

    phrase = HTTPStatus(response.status).phrase if response.status in set(HTTPStatus) else ""
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{name}: {value}" for name, value in response.headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _write(response: "DecodedResponse", out: str) -> None:
    from headgate.bundle.files.atomic_file import open_output as writing

    with writing(target_of(out), response.length) as output:
        for piece in content(response):
            output.put(piece)
