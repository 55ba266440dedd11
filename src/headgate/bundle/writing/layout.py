"""Where everything in a bundle is: what stands before the first response, and how long the whole will be (3.1).

This file turns lengths into bytes. It knows nothing of payloads, and checks nothing that the writer has checked.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct

from headgate.bundle.format.cbor import ARRAY, MAP, UINT, data, encode, head, text
from headgate.bundle.model import Version
from headgate.errors import ConfigurationError

_MAGIC: Final = data("🌐📦".encode())
_LEADS: Final[dict[Version, bytes]] = {
    # The document's words ask for 0x84 and "1", though its CDDL has six items; the registered drafts write 0x86.
    "draft-01": b"\x84" + _MAGIC + data(b"1\0\0\0"),
    "b1": b"\x86" + _MAGIC + data(b"b1\0\0"),
    "b2": b"\x85" + _MAGIC + data(b"b2\0\0"),
}
VERSIONS: Final[tuple[Version, ...]] = tuple(_LEADS)
_TRAILER: Final = 9
"""Bytes of the last item: the head of an 8-byte string, and the length of the bundle."""
_MAX_SECTION_LENGTHS: Final = 8192
"""3.3 step 9: section lengths of so many bytes, or more, are refused."""


class VariantEntry(Struct, frozen=True):
    """The responses of one URL with variants: its Variants value, and an ordinal for each key in row-major order."""

    variants: bytes
    ordinals: Sequence[int]


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


def lay_out(form: BundleSpec, index: Mapping[str, int | VariantEntry], lengths: Sequence[int]) -> Layout:
    """Lay out a bundle of responses with these lengths; `index` maps URLs to their ordinals.

    Raises `ConfigurationError` for more sections than readers accept.
    """
    responses = head(ARRAY, len(lengths))
    sections = dict(form.sections)
    sections["index"] = index_section(index, lengths, has_variants=form.version != "b2")
    in_responses = len(responses) + sum(lengths)
    table = _section_lengths([*((name, len(item)) for name, item in sections.items()), ("responses", in_responses)])
    parts = [_LEADS[form.version], data(table), head(ARRAY, len(sections) + 1), *sections.values(), responses]
    if form.version != "b2":
        parts.insert(1, text(form.primary_url or ""))
    before = b"".join(parts)
    length = len(before) - len(responses) + in_responses + _TRAILER
    return Layout(before, data(length.to_bytes(8, "big")), length)


def index_section(index: Mapping[str, int | VariantEntry], lengths: Sequence[int], *, has_variants: bool) -> bytes:
    """Encode the index: for each URL the location of its response, or of each of its variants (3.3.1)."""
    # "offset ... from the start of" the responses section, whose own head comes first
    offsets = array("Q", accumulate(lengths, initial=len(head(ARRAY, len(lengths)))))
    # A key's head has its length, so none is a prefix of another: entries sort as their keys do.
    entries = sorted(_entries(index, offsets, lengths, b"\x83\x40" if has_variants else b"\x82"))
    return head(MAP, len(entries)) + b"".join(entries)


def _entries(
    index: Mapping[str, int | VariantEntry], offsets: Sequence[int], lengths: Sequence[int], lone: bytes
) -> Iterator[bytes]:
    for url, found in index.items():
        if isinstance(found, VariantEntry):
            places = b"".join(_uint(offsets[ordinal]) + _uint(lengths[ordinal]) for ordinal in found.ordinals)
            yield text(url) + head(ARRAY, 1 + 2 * len(found.ordinals)) + data(found.variants) + places
        else:
            yield text(url) + lone + _uint(offsets[found]) + _uint(lengths[found])


def _uint(number: int) -> bytes:
    return head(UINT, number)


def _section_lengths(lengths: Sequence[tuple[str, int]]) -> bytes:
    table = encode([part for pair in lengths for part in pair])
    if len(table) >= _MAX_SECTION_LENGTHS:
        raise ConfigurationError(
            f"the names of {len(lengths)} sections take {len(table)} bytes; a bundle holds less than 8192"
        )
    return table
