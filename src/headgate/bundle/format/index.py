"""The index section: from URLs to locations (3.3.1).

What nearly all indexes are made of, URLs of one origin with one location each, is taken all at once by a short way
that takes nothing else; any other entry, and any that is wrong, goes the document's way, step by step. A property test
holds both ways equal.
"""

import re
import string
from array import array
from operator import add
from typing import Final

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, MAP, CborError, Items
from headgate.bundle.format.section_url import SectionError, section_url
from headgate.bundle.model import Location, Section, VariantSet
from headgate.bundle.variants import MAX_KEY_TEXT, MAX_KEYS, MAX_TOTAL_KEYS, count_keys, measure_keys, parse_variants
from headgate.http.url import is_normal

__all__ = ["Index", "IndexRules", "read_entry", "read_index"]

Index = dict[str, Location | VariantSet]

_UINT: Final = rb"([\x00-\x17]|\x18[\x18-\xff]|\x19(?!\x00)..|\x1a(?!\x00\x00)....|\x1b(?!\x00{4}).{8})"
_LONE_LOCATION: Final = {
    True: re.compile(rb"\x83\x40" + _UINT + _UINT, re.DOTALL),
    False: re.compile(rb"\x82" + _UINT + _UINT, re.DOTALL),
}
"""One location in its only encoding, after an empty Variants value or, in b2, alone."""
_ARGUMENT: Final = (0, 0xFF, 0xFF, 0xFFFF, 0, 0xFFFF_FFFF, 0, 0, 0, 0xFFFF_FFFF_FFFF_FFFF)
"""From the bytes of an integer's item to the bits that are its argument."""
_LONG_TEXT: Final = 0x78
"""The head of a text of 24 to 255 bytes, before the byte that says how many; that of no longer text is less."""
_LEAST_LONG: Final = 24
_LEFT_ALONE: Final = string.ascii_letters.encode() + string.digits.encode() + b"!$&()*+,-./:;=?@_~%"
"""What the URL parser leaves alone wherever it stands behind the origin, dot segments apart."""


class IndexRules(Struct, frozen=True):
    """What reading an index takes besides its bytes."""

    responses: Section
    has_variants: bool
    """b1 and draft-01: an entry begins with a Variants value. In b2 it is a location alone."""
    base_url: str | None
    """What relative URLs are resolved against (b2): None allows none, `KEPT` leaves them as they are."""


def read_index(source: bytes, rules: IndexRules) -> Index:
    """Parse the index section; raises `CborError` and `SectionError`, with offsets from the section's first byte."""
    items = Items(source)
    requests: Index = {}
    key = b""
    untried = True
    variant_keys = 0
    for left in range(items.head(MAP), 0, -1):
        start = items.position
        # The keys are in order, so those of 24 bytes and more come last, and are nearly all of a usual index.
        if untried and source[start : start + 1] == b"\x78":
            untried = False
            if _read_usual(items, rules, requests, left):
                break
        key = items.key(items.text, key)[1]
        items.position = start
        variant_keys += read_entry(items, rules, requests)
        if variant_keys > MAX_TOTAL_KEYS:
            # Ours, as the bounds of one URL are.
            raise SectionError(f"more than {MAX_TOTAL_KEYS} variant keys in all", "3.3.1 step 4.4.2", start)
    items.end()
    return requests


def _read_usual(items: Items, rules: IndexRules, requests: Index, count: int) -> bool:
    """Take the last `count` entries all at once where nothing is unusual about any; else take none, and say so.

    Usual: URLs of one origin, in normal form and 24 to 255 bytes long, in order, each with one location.
    """
    pieces = _LONE_LOCATION[rules.has_variants].split(items.source[items.position :])
    keys, offsets, lengths, end = pieces[:-1:3], pieces[1::3], pieces[2::3], pieces[-1]
    if end or len(keys) != count:
        return False
    try:
        urls = [key[2:].decode("ascii") for key in keys]
    except UnicodeDecodeError:
        return False
    from_bytes = int.from_bytes
    # One pass of C over each of these, so that ten thousand URLs cost few milliseconds. What is no key at all, and may
    # have no byte to look at, is too short.
    lengths_of_urls = list(map(len, urls))
    if min(lengths_of_urls) < _LEAST_LONG or [key[1] for key in keys] != lengths_of_urls:
        return False
    if keys[-1][0] != _LONG_TEXT or sorted(keys) != keys or not _are_normal(urls):
        return False
    begins = [from_bytes(item) & _ARGUMENT[len(item)] for item in offsets]
    sizes = [from_bytes(item) & _ARGUMENT[len(item)] for item in lengths]
    if max(map(add, begins, sizes)) > rules.responses.length:
        return False
    first = rules.responses.offset
    found = {url: Location(first + begin, size) for url, begin, size in zip(urls, begins, sizes, strict=True)}
    if len(found) != count or not found.keys().isdisjoint(requests):
        return False
    requests.update(found)
    items.position = len(items.source)
    return True


def _are_normal(urls: list[str]) -> bool:
    """Say whether all these URLs are of one origin and in normal form; False also where only the parser could tell."""
    origin = urls[0][: urls[0].find("/", 8) + 1]
    together = "\n".join(urls)
    return (
        is_normal(origin)
        and together.startswith(origin)
        and together.count("\n" + origin) == len(urls) - 1
        and together.encode().translate(None, _LEFT_ALONE) == b"\n" * (len(urls) - 1)
        # A segment that begins with a dot, or with %2E for one, may be a dot segment.
        and "/." not in together
        and ("%" not in together or "/%" not in together)
    )


def read_entry(items: Items, rules: IndexRules, requests: Index) -> int:
    """Take one entry, the document's way, and give the number of its variant keys.

    Raises `SectionError` only once the whole entry has been taken.
    """
    start = items.position
    text = items.text()
    variants, locations = _read_value(items, rules)
    # 3.3.1 step 4.1 and 4.2: parsed with no base URL; neither fragment nor credentials.
    url = section_url(text, rules.base_url, "3.3.1 step 4.2", start)
    if url in requests:
        # The document asserts that this cannot be; two keys that are one URL once parsed make it so.
        raise SectionError(f"the URL {url[:200]} appears twice", "3.3.1 step 4.3.2", start)
    if not variants:
        # 3.3.1 step 4.3.1: without a Variants value there is one location and no more.
        if len(locations) != 1:
            raise SectionError(f"{len(locations)} locations without a Variants value", "3.3.1 step 4.3.1", start)
        requests[url] = _in_stream(locations[0], rules, start)
        return 0
    requests[url] = _negotiated(variants, locations, rules, start)
    return len(locations)


def _read_value(items: Items, rules: IndexRules) -> tuple[bytes, list[tuple[int, int]]]:
    """Take what the CDDL's `index` has for a value: Variants value and pairs of integers; in b2 one pair alone."""
    start = items.position
    count = items.head(ARRAY)
    variants = b""
    if rules.has_variants:
        if count < 3 or not count % 2:
            raise CborError(f"an index entry has {count} items, not a value and pairs", "3.5.1 step 5", start)
        variants = items.data()
    elif count != 2:
        raise CborError(f"an index entry has {count} items, not two", "3.5.1 step 5", start)
    return variants, [(items.uint(), items.uint()) for _ in range(count // 2)]


def _negotiated(value: bytes, locations: list[tuple[int, int]], rules: IndexRules, start: int) -> VariantSet:
    text = value.decode("latin-1")
    axes = parse_variants(text)
    if axes is None:
        raise SectionError(f"{text[:200]!r} is no Variants value", "3.3.1 step 4.4.1", start)
    count = count_keys(axes)
    if count > MAX_KEYS:
        # Ours: the document sets no bound, and a few hundred bytes can claim any number.
        raise SectionError(f"{count} variant keys, where {MAX_KEYS} are taken", "3.3.1 step 4.4.2", start)
    if len(locations) != count:
        raise SectionError(f"{len(locations)} locations for {count} variant keys", "3.3.1 step 4.4.3", start)
    size = measure_keys(axes)
    if size > MAX_KEY_TEXT:
        # Ours: each key repeats its values, so that a hundred kilobytes can claim a gigabyte of keys.
        raise SectionError(
            f"variant keys of {size} characters, where {MAX_KEY_TEXT} are taken", "3.3.1 step 4.4.2", start
        )
    places = array("Q")
    for location in locations:
        found = _in_stream(location, rules, start)
        places.extend((found.offset, found.length))
    return VariantSet(text, places)


def _in_stream(location: tuple[int, int], rules: IndexRules, start: int) -> Location:
    """MakeRelativeToStream (3.3.1 step 3)."""
    offset, length = location
    if offset + length > rules.responses.length:
        ends = f"a response at {offset} of {length} bytes ends behind the {rules.responses.length} bytes of its section"
        raise SectionError(ends, "3.3.1 step 3.1", start)
    return Location(rules.responses.offset + offset, length)
