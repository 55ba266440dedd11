"""Every response of a bundle in the order people expect: URLs as in the file, the variants of one as in the index."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headgate.cli.bundle.output import forget
from headgate.errors import ResponseError

if TYPE_CHECKING:
    from headgate.bundle.model import Location, Response
    from headgate.bundle.reading.reader import Bundle

__all__ = ["Found", "count", "walk"]


_MAPPED = 128
"""Responses whose pages may be in memory at once; the system reads a few on either side of each."""


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
    """Yield every response; one that is refused as its refusal, so that it does not hide the others."""
    for number, (url, key, location) in enumerate(bundle.locations(), 1):
        yield Found(url, key, location, _load(bundle, location))
        if not number % _MAPPED:
            forget(bundle.raw)


def _load(bundle: "Bundle", location: "Location") -> "Response | ResponseError":
    try:
        return bundle.load(location)
    except ResponseError as error:
        return error
