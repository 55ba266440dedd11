"""Everything in a new bundle but its responses: the index and the other sections, and where each part is (3.1).

`IndexBuilder` collects which response belongs to which URL and variant key, `build_spec` makes the other sections, and
`lay_out` turns both and the lengths of the responses into bytes.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, TypeAlias

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, MAP, UINT, data, encode, head, text
from headgate.bundle.format.metadata import MAGIC, MAX_SECTION_TABLE_SIZE, TRAILER_SIZE, VERSION_BYTES
from headgate.bundle.model import Location, VariantSet, Version
from headgate.bundle.variants import (
    MAX_TOTAL_KEYS,
    Axis,
    excess_of_keys,
    parse_key,
    parse_variants,
    variant_keys,
    write_key,
)
from headgate.errors import ConfigurationError, fail_if
from headgate.http.url import has_credentials, has_fragment, parse_url

VariantKeys: TypeAlias = str | Sequence[str] | None
"""`gzip;en`, or several such keys that share a response; None for a URL without variants."""

# The document's words ask for 0x84 and "1", though its CDDL has six items; the registered drafts write 0x86.
_ARRAY_HEADS: Final[dict[Version, bytes]] = {"draft-01": b"\x84", "b1": b"\x86", "b2": b"\x85"}
_MAX_NAMED: Final = 12
"""Maximum missing keys in a message."""


def normalize_url(url: str, *, is_primary: bool = False) -> str:
    """Return a URL in the WHATWG parser's form; a primary URL may have a fragment (3.3 step 6).

    Raises `ConfigurationError` as 3.3.1 step 4.2 refuses: when it "is a failure, its fragment is not null, or it
    includes credentials".
    """
    fail_if(not isinstance(url, str), f"expected a URL such as 'https://example.com/', got {url!r:.200}")
    normal = parse_url(url)
    if normal is None:
        raise ConfigurationError(f"{url[:200]!r} is not an absolute URL; expected one such as https://example.com/")
    # Credentials are secret, so the message leaves them out.
    fail_if(has_credentials(normal), f"the URL of {normal.rpartition('@')[2][:200]} has credentials; leave them out")
    fail_if(
        has_fragment(normal) and not is_primary,
        f"the URL {url[:200]} has a fragment; leave out the # and what follows it",
    )
    return normal


class VariantEntry(Struct, frozen=True):
    """The responses of one URL with variants: its Variants value, and an ordinal for each key in row-major order."""

    variants: bytes
    ordinals: Sequence[int]


def stored_entry(found: Location | VariantSet, ordinal: Callable[[Location], int]) -> int | VariantEntry:
    """Return the index entry of a URL that was read; `ordinal` returns that of the response at a location."""
    if isinstance(found, Location):
        return ordinal(found)
    # A value that an axis has twice makes a key twice, and has two locations in the index.
    axes = parse_variants(found.variants) or ()
    ordinals = [ordinal(found.locations[key]) for key in variant_keys(axis.values for axis in axes)]
    return VariantEntry(found.variants.encode("latin-1"), ordinals)


class BundleSpec(Struct, frozen=True):
    """A bundle apart from its exchanges."""

    version: Version
    primary_url: str | None
    """Precedes the sections of b1 and draft-01; in b2 it is a section."""
    sections: Mapping[str, bytes]
    """From name to item, in the order they are written; that of `index` is empty, it is made from the exchanges."""


class Layout(Struct, frozen=True):
    """A bundle without its responses."""

    before: bytes
    """The bytes before the first response."""
    after: bytes
    length: int
    """Bytes of the whole bundle."""


class _Negotiation(Struct):
    variants: str
    ordinals: dict[str, int | None]
    """From variant key, in row-major order, to the response; None until it has been added."""


class IndexBuilder:
    """Maps URLs to the ordinals of responses."""

    def __init__(self) -> None:
        self._urls: dict[str, int | _Negotiation] = {}
        self._variant_keys = 0

    def __contains__(self, url: str) -> bool:
        return url in self._urls

    def place(self, url: str, ordinal: int) -> None:
        """Add the only response of a URL; `ConfigurationError` if it has one."""
        fail_if(url in self._urls, "the URL was added before; several responses need `variants` and a key each")
        self._urls[url] = ordinal

    def place_variant(self, url: str, ordinal: int, variants: str | None, keys: VariantKeys) -> None:
        """Add the response of a URL for these keys; its first response comes with its Variants value.

        Raises `ConfigurationError`, and then adds nothing.
        """
        known = self._urls.get(url)
        if isinstance(known, int):
            raise ConfigurationError("the URL was added before, without variants")
        negotiation = known or _parse_negotiation(variants)
        fail_if(
            variants is not None and variants != negotiation.variants,
            f"its variants are {negotiation.variants!r} already, not {variants!r}",
        )
        chosen = dict.fromkeys(map(_normalize_key, [keys] if isinstance(keys, str) else keys or ()), ordinal)
        fail_if(not chosen, "the URL has variants; name this one with variant_key")
        for key in chosen:
            if key not in negotiation.ordinals:
                raise ConfigurationError(f"unknown variant {key}; the keys are {_list_some(negotiation.ordinals)}")
            fail_if(negotiation.ordinals[key] is not None, f"the variant {key} was added before")
        if known is None:
            variant_keys = self._variant_keys + len(negotiation.ordinals)
            fail_if(
                variant_keys > MAX_TOTAL_KEYS, f"{variant_keys} variant keys in all; a bundle holds {MAX_TOTAL_KEYS}"
            )
            self._variant_keys = variant_keys
        negotiation.ordinals.update(chosen)
        self._urls[url] = negotiation

    def finish(self) -> Mapping[str, int | VariantEntry]:
        """Return the index; raises `ConfigurationError`, which names the first URL with missing variants.

        "one 'location-in-responses' pair for each of the possible combinations of available-values"
        """
        index: dict[str, int | VariantEntry] = {}
        for url, found in self._urls.items():
            if isinstance(found, int):
                index[url] = found
                continue
            ordinals = [ordinal for ordinal in found.ordinals.values() if ordinal is not None]
            if len(ordinals) < len(found.ordinals):
                missing = [key for key, ordinal in found.ordinals.items() if ordinal is None]
                raise ConfigurationError(f"{url} lacks the variants {_list_some(missing)}; add a response for each key")
            index[url] = VariantEntry(found.variants.encode("latin-1"), ordinals)
        return index


def parse_axes(variants: str) -> tuple[Axis, ...]:
    """Parse a Variants value; raises `ConfigurationError` for an invalid one, and for too many keys."""
    axes = parse_variants(variants)
    if not axes or not all(axis.values for axis in axes):
        raise ConfigurationError(
            f"{variants[:200]!r} is not a valid Variants value; expected a form such as 'Accept-Encoding;gzip;br'"
        )
    if fault := excess_of_keys(axes):
        raise ConfigurationError(fault)
    fail_if(
        any(len(set(axis.values)) < len(axis.values) for axis in axes),
        f"{variants[:200]!r} has a value twice, so two responses for one key",
    )
    return axes


def build_spec(version: Version, primary_url: str | None, manifest_url: str | None) -> BundleSpec:
    """Return the sections of a bundle in the order of the published writer `wbn`: the index comes last."""
    items: dict[str, bytes] = {}
    if version == "b2" and primary_url is not None:
        items["primary"] = text(primary_url)
    if manifest_url is not None:
        items["manifest"] = text(manifest_url)
    return BundleSpec(version, primary_url, {**items, "index": b""})


def lay_out(spec: BundleSpec, index: Mapping[str, int | VariantEntry], lengths: Sequence[int]) -> Layout:
    """Lay out a bundle of responses with these lengths; `index` maps URLs to their ordinals.

    Raises `ConfigurationError` for more sections than readers accept.
    """
    responses = head(ARRAY, len(lengths))
    sections = dict(spec.sections)
    sections["index"] = index_section(index, lengths, has_variants=spec.version != "b2")
    in_responses = len(responses) + sum(lengths)
    table = encode([*chain(*((name, len(item)) for name, item in sections.items())), "responses", in_responses])
    if len(table) >= MAX_SECTION_TABLE_SIZE:
        fault = f"the names of {len(sections) + 1} sections take {len(table)} bytes"
        raise ConfigurationError(f"{fault}; a bundle holds less than {MAX_SECTION_TABLE_SIZE}")
    lead = _ARRAY_HEADS[spec.version] + MAGIC + data(VERSION_BYTES[spec.version])
    url = text(spec.primary_url or "") if spec.version != "b2" else b""
    before = b"".join((lead, url, data(table), head(ARRAY, len(sections) + 1), *sections.values(), responses))
    length = len(before) - len(responses) + in_responses + TRAILER_SIZE
    return Layout(before, data(length.to_bytes(8, "big")), length)


def index_section(index: Mapping[str, int | VariantEntry], lengths: Sequence[int], *, has_variants: bool) -> bytes:
    """Encode the index: for each URL the location of its response, or of each of its variants (3.3.1)."""
    # "offset ... from the start of" the responses section, whose own head comes first
    offsets = array("Q", accumulate(lengths, initial=len(head(ARRAY, len(lengths)))))
    # A key's head has its length, so none is a prefix of another: entries sort as their keys do.
    entries = sorted(_entries(index, offsets, lengths, b"\x83\x40" if has_variants else b"\x82"))
    return head(MAP, len(entries)) + b"".join(entries)


def _entries(
    index: Mapping[str, int | VariantEntry], offsets: Sequence[int], lengths: Sequence[int], single: bytes
) -> Iterator[bytes]:
    for url, found in index.items():
        if isinstance(found, VariantEntry):
            places = b"".join(head(UINT, offsets[ordinal]) + head(UINT, lengths[ordinal]) for ordinal in found.ordinals)
            yield text(url) + head(ARRAY, 1 + 2 * len(found.ordinals)) + data(found.variants) + places
        else:
            yield text(url) + single + head(UINT, offsets[found]) + head(UINT, lengths[found])


def _parse_negotiation(variants: str | None) -> _Negotiation:
    if variants is None:
        raise ConfigurationError(
            "there is a variant key without `variants`; pass `variants` with the first response of the URL"
        )
    return _Negotiation(variants, dict.fromkeys(variant_keys(axis.values for axis in parse_axes(variants))))


def _normalize_key(key: str) -> str:
    values = parse_key(key)
    if not values:
        raise ConfigurationError(f"{key[:200]!r} is not a variant key; expected a form such as 'gzip;en'")
    return write_key(values)


def _list_some(keys: Sequence[str] | Mapping[str, int | None]) -> str:
    more = len(keys) - _MAX_NAMED
    return ", ".join(list(keys)[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
