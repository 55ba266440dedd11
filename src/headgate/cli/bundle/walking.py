"""Every response of a bundle in the order people expect: URLs as in the file, the variants of one as in the index."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headgate.bundle.format.constants import MAX_HEADERS_SIZE
from headgate.cli.bundle.output import forget
from headgate.errors import HeadgateError, ResponseError

if TYPE_CHECKING:
    from headgate.bundle.model import Location, Response
    from headgate.bundle.reading.reader import Bundle

__all__ = ["Found", "count", "walk"]


_MAPPED = 128
"""Responses whose pages may be in memory at once; the system reads a few on either side of each."""

_EXTRA_HEADERS_SIZE = 64 * 1024 * 1024
"""Bytes of headers that are read beyond the size of the bundle: only responses that overlap have so many."""


class Found(NamedTuple):
    """One URL and variant key, and what is there."""

    url: str
    variant_key: str | None
    location: "Location"
    response: "Response | ResponseError"


def count(bundle: "Bundle") -> int:
    """Give how many responses `walk` yields: a shared one counts for each of its keys."""
    from headgate.bundle.model import VariantSet

    requests = bundle.metadata.requests.values()
    return sum(len(found.locations) if isinstance(found, VariantSet) else 1 for found in requests)


def walk(bundle: "Bundle") -> Iterator[Found]:
    """Yield every response; one that is refused as its refusal, so that it does not hide the others.

    Keys that share a location share the response. Raises `HeadgateError` where the responses overlap so much that
    reading their headers would take time out of proportion to the bundle.
    """
    left = bundle.size + _EXTRA_HEADERS_SIZE
    last: Location | None = None
    response: Response | ResponseError
    for number, (url, key, location) in enumerate(bundle.locations(), 1):
        if location != last:
            last, response = location, _load(bundle, location)
            left -= _headers_size(location, response)
            if left < 0:
                raise HeadgateError(
                    "the responses overlap: reading the headers of all of them would take too long, so the rest is "
                    "left out; get gives single responses"
                )
        yield Found(url, key, location, response)
        if not number % _MAPPED:
            forget(bundle.raw)


def _headers_size(location: "Location", response: "Response | ResponseError") -> int:
    """Return how many bytes before the payload were read, at most."""
    if isinstance(response, ResponseError):
        return min(location.length, MAX_HEADERS_SIZE)
    return location.length - len(response.payload)


def _load(bundle: "Bundle", location: "Location") -> "Response | ResponseError":
    try:
        return bundle.load(location)
    except ResponseError as error:
        return error
