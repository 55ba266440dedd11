"""The contents of each section: index, manifest, critical, signatures, and b2's primary (3.3.1 to 3.3.4)."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, BYTES, CborError, Items, StepError
from headgate.bundle.model import Location, Section, VariantSet, VouchedSubset
from headgate.bundle.variants import MAX_TOTAL_KEYS, excess_of_keys, parse_variants, variant_keys
from headgate.errors import fail_if
from headgate.http.url import has_credentials, has_fragment, parse_url, resolve

Index = dict[str, Location | VariantSet]

KEEP_RELATIVE: Final = ""
"""The base URL where none is known: relative URLs are kept as they are."""
_ANY_BASE: Final = "https://somewhere.invalid/"


class IndexRules(Struct, frozen=True):
    """What the index is read by besides its bytes."""

    responses: Section
    has_variants: bool
    """b1 and draft-01: an entry begins with a Variants value. In b2 it is a location alone."""
    base_url: str | None
    """What relative URLs are resolved against (b2): None allows none, `KEEP_RELATIVE` leaves them as they are."""


def check_base_url(base_url: str | None) -> None:
    """Raise `ConfigurationError` for a base URL that relative URLs cannot be resolved against; None is valid."""
    fail_if(
        base_url is not None and (not isinstance(base_url, str) or resolve("a", base_url) is None),
        f"base_url {base_url!r:.200} is not an absolute URL such as https://example.com/",
    )


def read_index(source: bytes, rules: IndexRules) -> Index:
    """Parse the index section; raises `StepError`, with offsets from the section's first byte."""
    items = Items(source)
    requests: Index = {}
    variant_count = 0
    for text in items.entries(items.text):
        start = items.key_start
        variant_count += _read_entry(items, text, start, rules, requests)
        if variant_count > MAX_TOTAL_KEYS:
            # A limit of ours, like those for one URL.
            raise StepError(f"more than {MAX_TOTAL_KEYS} variant keys in all", "3.3.1 step 4.4.2", start)
    items.end()
    return requests


def _read_entry(items: Items, text: str, start: int, rules: IndexRules, requests: Index) -> int:
    """Read the value of one entry by the document's steps, and return the number of its variant keys.

    Raises `StepError` only once the whole entry has been read.
    """
    variants, locations = _read_value(items, rules)
    # 3.3.1 step 4.1 and 4.2: parsed with no base URL; neither fragment nor credentials.
    url = section_url(text, rules.base_url, "3.3.1 step 4.2", start)
    if url in requests:
        # The document asserts that this cannot be; two keys that are one URL once parsed make it so.
        raise StepError(f"the URL {url[:200]} appears twice", "3.3.1 step 4.3.2", start)
    if not variants:
        # 3.3.1 step 4.3.1: without a Variants value there is one location and no more.
        if len(locations) != 1:
            raise StepError(f"{len(locations)} locations without a Variants value", "3.3.1 step 4.3.1", start)
        requests[url] = _in_stream(locations[0], rules, start)
        return 0
    requests[url] = _variant_set(variants, locations, rules, start)
    return len(locations)


def read_critical(source: bytes, known: Collection[str]) -> list[str]:
    """Parse the critical section: names of sections, of which one that is not known is refused (3.3.4)."""
    items = Items(source)
    names = []
    for _ in range(items.array()):
        start = items.position
        names.append((items.text(), start))
    items.end()
    for name, start in names:
        if name not in known:
            raise StepError(f"the section {name[:80]!r} is critical and unknown", "3.3.4 step 2", start)
    return [name for name, _ in names]


def read_signatures(source: bytes) -> tuple[tuple[bytes, ...], tuple[VouchedSubset, ...]]:
    """Parse the signatures section: authorities and vouched subsets, unverified (3.3.3)."""
    items = Items(source)
    items.array(2)
    authorities = tuple(read_certificate(items)[0] for _ in range(items.array()))
    subset = {"authority": items.uint, "sig": items.data, "signed": items.data}
    vouched_subsets = tuple(VouchedSubset(**items.record(subset, closed=True)) for _ in range(items.array()))
    items.end()
    return authorities, vouched_subsets


def section_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL that has neither fragment nor credentials; `base_url` is as `any_url` has it."""
    url = any_url(text, base_url, step, offset)
    absolute = url if base_url is None else resolve(url, _ANY_BASE) or url
    if has_fragment(absolute):
        raise StepError(f"the URL {text[:200]!r} has a fragment", step, offset)
    if has_credentials(absolute):
        raise StepError(f"the URL {text[:200]!r} has credentials", step, offset)
    return url


def any_url(text: str, base_url: str | None, step: str, offset: int) -> str:
    """Parse a URL, resolved against `base_url`: None allows no relative URL, `KEEP_RELATIVE` keeps it."""
    if base_url:
        url = resolve(text, base_url)
    else:
        url = parse_url(text)
        if url is None and base_url == KEEP_RELATIVE and resolve(text, _ANY_BASE) is not None:
            url = text
    if url is None:
        fault = "is not an absolute URL" if base_url is None else "is not a URL"
        raise StepError(f"the URL {text[:200]!r} {fault}", step, offset)
    return url


def read_lone_text(source: bytes) -> str:
    """Parse a section that is one text string."""
    items = Items(source)
    text = items.text()
    items.end()
    return text


def read_certificate(items: Items) -> tuple[bytes, dict[str, bytes]]:
    """Read an augmented certificate: its bytes, and its members."""
    start = items.position
    # {cert: bytes, ? ocsp: bytes, ? sct: bytes, * tstr => any}
    found = items.record(dict.fromkeys(("cert", "ocsp", "sct"), items.data), optional=("ocsp", "sct"))
    return items.source[start : items.position], found


def _read_value(items: Items, rules: IndexRules) -> tuple[bytes, list[tuple[int, int]]]:
    """Read the value of an index entry: a Variants value and pairs of integers; in b2 one pair alone."""
    start = items.position
    count = items.head(ARRAY)
    variants = b""
    if rules.has_variants:
        if count < 3 or not count % 2:
            mixed = ", the form of b2" if count == 2 else ""
            fault = f"an index entry has {count} items{mixed}; expected a Variants value and pairs"
            raise CborError(fault, "3.5.1 step 5", start)
        variants = items.data()
    elif count != 2:
        mixed = ", the form of b1" if count > 2 and items.peek() == BYTES else ""
        raise CborError(f"an index entry has {count} items{mixed}; expected 2", "3.5.1 step 5", start)
    return variants, [(items.uint(), items.uint()) for _ in range(count // 2)]


def _variant_set(value: bytes, locations: list[tuple[int, int]], rules: IndexRules, start: int) -> VariantSet:
    text = value.decode("latin-1")
    axes = parse_variants(text)
    if axes is None:
        raise StepError(f"{text[:200]!r} is not a valid Variants value", "3.3.1 step 4.4.1", start)
    if fault := excess_of_keys(axes):
        # Limits of ours: the document sets none, and a few hundred bytes can claim any number of keys.
        raise StepError(fault, "3.3.1 step 4.4.2", start)
    keys = list(variant_keys(axis.values for axis in axes))
    if len(locations) != len(keys):
        raise StepError(f"{len(locations)} locations for {len(keys)} variant keys", "3.3.1 step 4.4.3", start)
    # Of a value that an axis has twice, the later location counts.
    return VariantSet(
        text, {key: _in_stream(location, rules, start) for key, location in zip(keys, locations, strict=True)}
    )


def _in_stream(location: tuple[int, int], rules: IndexRules, start: int) -> Location:
    """MakeRelativeToStream (3.3.1 step 3)."""
    offset, length = location
    if offset + length > rules.responses.length:
        fault = f"a response at {offset} of {length} bytes ends beyond its section of {rules.responses.length} bytes"
        raise StepError(fault, "3.3.1 step 3.1", start)
    return Location(rules.responses.offset + offset, length)
