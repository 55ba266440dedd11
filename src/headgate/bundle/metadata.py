"""What a bundle says of itself before its first response: value types, filled in by the parser (2.2)."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "Location",
    "Metadata",
    "Negotiated",
    "Profile",
    "Section",
    "Version",
    "VouchedSubset",
]

Profile: TypeAlias = Literal["strict", "compat"]
"""strict is the document; compat takes what the published tools write."""

Version: TypeAlias = Literal["draft-01", "b1", "b2"]


class Location(Struct, frozen=True, gc=False):
    """Where a response is: the document's ResponseMetadata (3.3.1), in bytes from the first byte of the bundle."""

    offset: int
    length: int


class Negotiated(Struct, frozen=True):
    """The responses for a URL with content negotiation: its Variants value, and one location for each variant key."""

    variants: str
    """The Variants field value, such as `Accept-Encoding;gzip;br, Accept-Language;en;fr`."""
    locations: Mapping[str, Location]
    """From variant key (`gzip;en`) to location, in row-major order; two keys may share one location."""


class Section(Struct, frozen=True):
    """One section: its name and where its item is, in bytes from the first byte of the bundle."""

    name: str
    offset: int
    length: int


class VouchedSubset(Struct, frozen=True):
    """One signature over a subset of the responses, as parsed; nothing here is verified (3.3.3)."""

    authority: int
    """Index into `Metadata.authorities`; not checked to be within it."""
    sig: bytes
    signed: bytes
    """Expected to hold a CBOR signed-subset item."""


class Metadata(Struct, frozen=True):
    """What "load a bundle's metadata" returns (2.2)."""

    version: Version
    primary_url: str | None
    """The main resource's URL, also the fallback URL; None only in a b2 bundle without a primary section."""
    manifest_url: str | None
    """None where the bundle has no manifest section."""
    requests: Mapping[str, Location | Negotiated]
    """From URL, in the WHATWG parser's form, to the response or responses."""
    sections: tuple[Section, ...]
    """In file order; the last is `responses`."""
    authorities: tuple[bytes, ...] = ()
    """Each an augmented certificate, as its CBOR bytes."""
    vouched_subsets: tuple[VouchedSubset, ...] = ()

    @property
    def length(self) -> int:
        """Bytes of the whole bundle: all sections, and the nine bytes of its trailing length."""
        responses = self.sections[-1]
        return responses.offset + responses.length + 9
