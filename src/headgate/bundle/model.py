"""The value types of bundles: metadata, responses, and exchanges on their way into a bundle."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from headgate.errors import ResponseError

Profile: TypeAlias = Literal["strict", "compat"]
"""strict follows the document; compat also accepts what the published tools write."""

Version: TypeAlias = Literal["draft-01", "b1", "b2"]


class Location(Struct, frozen=True, order=True, gc=False):
    """Where a response is: the document's ResponseMetadata (3.3.1), in bytes from the first byte of the bundle."""

    offset: int
    length: int


Keys: TypeAlias = tuple[tuple[str, str | None], ...]
"""The URLs and variant keys that share one response."""


class VariantSet(Struct, frozen=True):
    """The responses for a URL with content negotiation: its Variants value, and one location for each variant key."""

    variants: str
    """The Variants field value, such as `Accept-Encoding;gzip;br, Accept-Language;en;fr`."""
    locations: Mapping[str, Location]
    """By variant key (`gzip;en`), in row-major order; two keys may share a location."""

    @property
    def offset(self) -> int:
        """Where the first of the responses is in the bundle."""
        return min(location.offset for location in self.locations.values())


def variants_of(found: Location | VariantSet) -> tuple[str, Mapping[str | None, Location]]:
    """Return the Variants value of a URL, empty without variants, and the locations by variant key or by None."""
    return ("", {None: found}) if isinstance(found, Location) else (found.variants, dict(found.locations.items()))


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
    requests: Mapping[str, Location | VariantSet]
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

    def locations(self) -> Iterator[tuple[str, str | None, Location]]:
        """Yield every URL and variant key with its location.

        URLs come in the order in which their first responses are in the file, the variants of one in row-major order.
        """
        for url, found in sorted(self.requests.items(), key=lambda entry: entry[1].offset):
            for key, location in variants_of(found)[1].items():
                yield url, key, location

    def in_file_order(self) -> Iterator[tuple[Location, Keys]]:
        """Yield each location once, in the order of the file, with all the keys that share it."""
        place = itemgetter(2)
        for location, shared in groupby(sorted(self.locations(), key=place), key=place):
            yield location, tuple((url, key) for url, key, _ in shared)


NOSNIFF: Final = ("x-content-type-options", "nosniff")
"""The header that readers append, so that no media type is guessed from a payload (3.4 step 9)."""


class Headers(Mapping[str, str]):
    """Headers of a response: names in lower case, found in any case; values as Latin-1."""

    __slots__ = ("_values",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in headers.items()}

    def __getitem__(self, name: str) -> str:
        """Return the value of a header; raises `KeyError`."""
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({self._values!r})"


class _StoredHeaders(Struct, frozen=True):
    """The beginning of a response."""

    status: int
    stored_headers: dict[str, str]
    """The headers in the bundle: names in lower case, values as Latin-1."""

    @property
    def headers(self) -> Headers:
        """The headers with `x-content-type-options: nosniff`, so that no media type is guessed (3.4 step 9)."""
        return Headers({**self.stored_headers, NOSNIFF[0]: NOSNIFF[1]})


class ResponseHead(_StoredHeaders, frozen=True):
    """A response up to its payload (3.4 steps 1 to 11)."""

    payload: Location


class Response(_StoredHeaders, frozen=True):
    """A response from a bundle (3.4)."""

    payload: memoryview
    """As stored, and not copied where the bundle is in memory; it stays valid when the bundle is closed."""

    @property
    def body(self) -> bytes:
        """The payload as bytes, with any content coding."""
        return bytes(self.payload)

    @property
    def text(self) -> str:
        """The payload as text in the charset of its content type, or UTF-8; bytes that are not text become U+FFFD."""
        found = _CHARSET.search(self.stored_headers.get("content-type", ""))
        try:
            return str(self.payload, found[1] if found else "utf-8", "replace")
        except LookupError:
            return str(self.payload, "utf-8", "replace")


_CHARSET: Final = re.compile(r";[ \t]*charset[ \t]*=[ \t]*\"?([^\s;\"]+)", re.IGNORECASE)


class StoredExchange(Struct, frozen=True):
    """One URL and variant key, and what is stored for it."""

    url: str
    variant_key: str | None
    location: Location
    response: Response | ResponseError
    """The response, or the error for one that breaks a step of 3.4, so that it does not hide the others."""


class _FilePath(Protocol):
    """A path, such as a `pathlib.Path`."""

    def __fspath__(self) -> str:
        """Return the path as text."""


Payload: TypeAlias = bytes | str | _FilePath | Iterable[bytes]
"""The bytes of a response, its text (stored in UTF-8), or where they are: a `Path`, a spooled payload, or chunks.

Chunks can be iterated once, and must be taken before the source is asked for its next exchange.
"""


class Exchange(Struct, frozen=True):
    """A URL and one response for it, as sources yield it and the writer takes it."""

    url: str
    """Absolute, without fragment and credentials."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Values as Latin-1, without pseudo-headers."""
    payload: Payload = b""
    variants: str | None = None
    """The Variants value of the URL, the same in each of its exchanges; None for a URL with one response."""
    variant_key: str | None = None
    """Which of the variants this is, such as `gzip;en`; None where `variants` is."""


UNSERVED_HEADERS: Final = frozenset({
    # Of one hop and its framing (9110 7.6.1, 9112 6), written by the sender of the message.
    "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length",
    "http2-settings", "content-range", "accept-ranges",
    # When and by which server the message was made: the response is sent now.
    "date", "age", "warning", "via", "x-cache", "headgate-source",
    # For the client with which the exchange was recorded.
    "set-cookie", "set-cookie2", "proxy-authenticate", "proxy-authentication-info", "authentication-info",
    # Other addresses of the origin.
    "alt-svc",
})  # fmt: skip
"""Stored headers that neither a server nor a transport passes on: the content of bundles is untrusted."""


def served_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the stored headers that may be passed on; names are in lower case."""
    # 9110 7.6.1: fields named in Connection are for that connection too.
    named = {member.strip().lower() for member in headers.get("connection", "").split(",")}
    return {name: value for name, value in headers.items() if name not in UNSERVED_HEADERS and name not in named}


_NEEDS_REQUEST: Final = {
    206: "a part, and the request is for the whole",
    304: "a response to a condition that the request does not have",
}


def unservable(status: int) -> str:
    """Return why no final response to a plain GET can have this status; empty for one that can be sent."""
    if not 200 <= status <= 599:
        return f"its status {status} is not that of a final response"
    return f"its status {status} is {_NEEDS_REQUEST[status]}" if status in _NEEDS_REQUEST else ""
