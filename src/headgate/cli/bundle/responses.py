"""Iterate over the responses of a bundle: URLs in the order of the file, the variants of one in that of the index."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.errors import HeadgateError, ResponseError

if TYPE_CHECKING:
    from headgate.bundle import Bundle, Location, Response, StoredExchange


_RESPONSES_IN_MEMORY = 128
"""Responses after which the memory of a mapped file is released."""

_EXTRA_HEADERS_SIZE = 64 * 1024 * 1024
"""Bytes of headers that may be read beyond the size of the bundle: only overlapping responses have so many."""


def count_responses(bundle: "Bundle") -> int:
    """Return how many responses `iterate_responses` yields: one for each URL and variant key."""
    from headgate.bundle import VariantSet

    requests = bundle.metadata.requests.values()
    return sum(len(found.locations) if isinstance(found, VariantSet) else 1 for found in requests)


def iterate_responses(bundle: "Bundle") -> "Iterator[StoredExchange]":
    """Yield every response, or the error of one that is malformed.

    A response that several keys share is loaded once. Raises `HeadgateError` where responses overlap so much that
    reading all their headers would take time out of proportion to the bundle.
    """
    from headgate.bundle import StoredExchange
    from headgate.bundle.files.byte_source import release_pages

    left = bundle.size + _EXTRA_HEADERS_SIZE
    last: Location | None = None
    response: Response | ResponseError
    for number, (url, key, location) in enumerate(bundle.locations(), 1):
        if location != last:
            last, response = location, _load(bundle, location)
            left -= _headers_size(location, response)
            if left < 0:
                raise HeadgateError(
                    "the responses overlap: reading the headers of all of them would take too long, so the others are "
                    "left out; use get for single ones"
                )
        yield StoredExchange(url, key, location, response)
        if not number % _RESPONSES_IN_MEMORY:
            release_pages(bundle.raw)


def _headers_size(location: "Location", response: "Response | ResponseError") -> int:
    """Return how many bytes before the payload were read, at most."""
    from headgate.bundle.format.constants import MAX_HEADERS_SIZE

    if isinstance(response, ResponseError):
        return min(location.length, MAX_HEADERS_SIZE)
    return location.length - len(response.payload)


def _load(bundle: "Bundle", location: "Location") -> "Response | ResponseError":
    try:
        return bundle.load(location)
    except ResponseError as error:
        return error
