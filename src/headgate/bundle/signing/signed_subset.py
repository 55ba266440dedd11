"""What a signature over responses covers: the signed-subset item (3.3.3), and the responses as they are stored."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from headgate.bundle.format import cbor
from headgate.bundle.format.cbor import LONGEST_HEAD, read_head
from headgate.bundle.model import Location, ResponseHead
from headgate.bundle.reader import Bundle

MAX_LIFETIME: Final = 7 * 24 * 60 * 60
"""Seconds from date to expires (signed exchanges, signature validity): "more than 7 days" is invalid."""
_CONTEXT: Final = b" " * 64 + b"Web Package 1 b1\0"
"""Precedes the signed bytes: the reference implementation's context for b1, padded as in TLS 1.3."""


class ResourceIntegrity(Struct, frozen=True):
    """The document's resource-integrity: one response."""

    header_sha256: bytes
    """Over the response's header map, as it is in the bundle."""
    payload_integrity_header: str


class SubsetEntry(Struct, frozen=True):
    """The responses of one URL: its Variants value, and one integrity for each variant key in row-major order."""

    variants: bytes
    integrities: tuple[ResourceIntegrity, ...]


class SignedSubset(Struct, frozen=True):
    """The content of one signature."""

    validity_url: str
    auth_sha256: bytes
    date: int
    expires: int
    subset_hashes: Mapping[str, SubsetEntry]


def signed_message(signed: bytes) -> bytes:
    """Return the bytes that the key signs."""
    return _CONTEXT + signed


def write_subset(subset: SignedSubset) -> bytes:
    """Encode a signed-subset item."""
    hashes = {
        url: [found.variants, *(part for one in found.integrities for part in astuple(one))]
        for url, found in subset.subset_hashes.items()
    }
    return cbor.encode(
        {
            "validity-url": subset.validity_url,
            "auth-sha256": subset.auth_sha256,
            "date": subset.date,
            "expires": subset.expires,
            "subset-hashes": hashes,
        }
    )


def read_subset(signed: bytes) -> SignedSubset:
    """Read a signed-subset item; raises `cbor.CborError` for anything else. Unknown keys are ignored."""
    items = cbor.Items(signed)
    members: dict[str, Callable[[], Any]] = {
        "validity-url": items.text,
        "auth-sha256": items.data,
        "date": items.uint,
        "expires": items.uint,
        "subset-hashes": lambda: _read_hashes(items),
    }
    found = items.record(members)
    items.end()
    return SignedSubset(*(found[name] for name in members))


def _read_hashes(items: cbor.Items) -> dict[str, SubsetEntry]:
    start = items.position
    hashes = {}
    for url in items.entries(items.text):
        entry = items.position
        count = items.array()
        if count < 3 or not count % 2:
            raise cbor.CborError(f"{count} items for a URL, not a Variants value and pairs", "3.5.1 step 5", entry)
        variants = items.data()
        hashes[url] = SubsetEntry(
            variants, tuple(ResourceIntegrity(items.data(), items.text()) for _ in range(count // 2))
        )
    if not hashes:
        raise cbor.CborError("a signed subset without a URL", "3.5.1 step 5", start)
    return hashes


def load_signed(bundle: Bundle, location: Location) -> tuple[ResponseHead, memoryview]:
    """Load a response that can be read at all, and the bytes of its header map, which `header-sha256` is over.

    Profile compat is used: a signature is valid or not whatever else readers require of a response. Raises
    `ResponseError`.
    """
    head = bundle.head(location, profile="compat")
    # 3.4 step 2 and 3: 0x82, and the head of the header map's byte string
    start = location.offset + 1
    _, length, begin = read_head(bundle.read(start, LONGEST_HEAD))
    return head, bundle.read(start + begin, length)
