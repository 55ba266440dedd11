"""Every response of a bundle in the order people expect: URLs as in the file, the variants of one as in the index."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headgate.cli.bundle.output import forget
from headgate.errors import ResponseError

if TYPE_CHECKING:
    from headgate.bundle.metadata import Location, Negotiated
    from headgate.bundle.reader import Bundle, Response

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
    return sum(len(_keys(entry)) for entry in bundle.metadata.requests.values())


def walk(bundle: "Bundle") -> Iterator[Found]:
    """Yield every response; one that is refused as its refusal, so that it does not hide the others."""
    entries = [(url, _keys(entry)) for url, entry in bundle.metadata.requests.items()]
    entries.sort(key=lambda entry: min(location.offset for _, location in entry[1]))
    yielded = itertools.count(1)
    for url, keys in entries:
        for key, location in keys:
            yield Found(url, key, location, _load(bundle, location))
            if not next(yielded) % _MAPPED:
                forget(bundle.raw)


def _load(bundle: "Bundle", location: "Location") -> "Response | ResponseError":
    try:
        return bundle.load(location)
    except ResponseError as error:
        return error


def _keys(entry: "Location | Negotiated") -> "list[tuple[str | None, Location]]":
    from headgate.bundle.metadata import Location

    return [(None, entry)] if isinstance(entry, Location) else list(entry.locations.items())
