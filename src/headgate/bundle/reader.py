"""Open bundles: load any response of a bundle in a file or in memory.

Bytes are read when they are needed, so one response of a large bundle costs that response alone. Bundles that are still
arriving are read by `headgate.bundle.stream`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import TypeVar

from msgspec import Struct

from headgate.bundle.format.incremental import Bytes, ByteSource, Parser, drive
from headgate.bundle.format.integrity_block import IntegrityBlock, integrity_block_parser
from headgate.bundle.format.merkle_integrity import DecodedContent, mi_decoding_parser
from headgate.bundle.format.metadata import metadata_parser, trailer_parser
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import (
    NOSNIFF,
    Location,
    Metadata,
    Profile,
    Response,
    ResponseHead,
    StoredExchange,
    VariantSet,
    Version,
)
from headgate.bundle.variants import parse_key, parse_variants, select_key, write_key
from headgate.errors import ConfigurationError, HeadgateError, NotInBundle, ResponseError
from headgate.http.url import parse_url, without_fragment

_Result = TypeVar("_Result")
_MAX_KEYS_NAMED = 12
_FIRST_READ_SIZE = 1 << 10
"""Bytes of a response that are read at once: enough for the headers of nearly any."""
_PIECE_SIZE = 1 << 20


class DecodedResponse(Struct, frozen=True):
    """A response as it was before it was signed; its payload is read when it is needed."""

    status: int
    decoded: DecodedContent
    payload: Location
    """As stored."""
    bundle: "Bundle"

    @property
    def headers(self) -> dict[str, str]:
        """The headers with `x-content-type-options: nosniff`, so that no media type is guessed (3.4 step 9)."""
        return {**self.decoded.headers, NOSNIFF[0]: NOSNIFF[1]}

    @property
    def length(self) -> int:
        """Bytes of the content."""
        return self.decoded.layout.length

    def pieces(self, start: int, stop: int) -> Iterator[Bytes]:
        """Yield the content from `start` to before `stop`, a megabyte at a time; raises as `Bundle.read` does."""
        offset, end = self.payload.offset, min(stop, self.length)
        for begin in range(start, end, _PIECE_SIZE):
            yield self.decoded.layout.read(
                lambda place, length: self.bundle.read(offset + place, length), begin, min(begin + _PIECE_SIZE, end)
            )


class Bundle(AbstractContextManager["Bundle"]):
    """An open bundle, made by `open_bundle`: a context manager, and a collection of URLs."""

    metadata: Metadata
    """Version, URLs, sections, and where each response is."""
    start: int
    """Bytes before the bundle: an integrity block, or what it was appended to."""
    size: int
    """Bytes from the bundle's first byte to the end of its file."""
    integrity_block: IntegrityBlock | None
    """The integrity block before the bundle, unverified; None without one, and for a bundle found from its end."""

    def __init__(
        self,
        source: ByteSource,
        *,
        profile: Profile,
        from_end: bool,
        base_url: str | None,
        max_section: int | None = None,
    ) -> None:
        self.profile = profile
        self._source = source
        self.start = 0
        self.integrity_block = None
        if from_end:
            self.start = self._run(trailer_parser(source.size))
        else:
            self.integrity_block = self._run(integrity_block_parser())
            self.start = self.integrity_block.length if self.integrity_block else 0
        self.size = source.size - self.start
        self.metadata = self._run(metadata_parser(profile=profile, base_url=base_url, max_section=max_section))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; payloads that were returned stay valid."""
        self._source.close()

    def __len__(self) -> int:
        """Return the number of URLs."""
        return len(self.metadata.requests)

    def __repr__(self) -> str:
        return f"<Bundle version={self.version!r} urls={len(self)} primary_url={self.primary_url!r}>"

    def __getitem__(self, url: str) -> Response:
        """Load the response for `url`; raises as `response` does, and `NotInBundle` is a `KeyError`."""
        return self.response(url)

    def __bool__(self) -> bool:
        """Return True: an empty bundle is a bundle."""
        return True

    def __iter__(self) -> Iterator[str]:
        """Yield the URLs, in the order of the index."""
        return iter(self.metadata.requests)

    def __contains__(self, url: object) -> bool:
        """Return whether the bundle has a response for a URL, in any form that parses to the same."""
        return isinstance(url, str) and find(self.metadata, url) is not None

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs, in the order of the index."""
        return tuple(self.metadata.requests)

    @property
    def version(self) -> Version:
        """The version of the format."""
        return self.metadata.version

    @property
    def primary_url(self) -> str | None:
        """The main resource's URL; None in a b2 bundle that names none."""
        return self.metadata.primary_url

    @property
    def manifest_url(self) -> str | None:
        """The manifest's URL; None in a bundle that names none."""
        return self.metadata.manifest_url

    def read(self, offset: int, length: int) -> memoryview:
        """Return bytes of the bundle, fewer at the end of its file; raises `OSError` for a file that has changed."""
        return self._source.read(self.start + offset, length)

    def pieces(self, location: Location) -> Iterator[memoryview]:
        """Yield bytes of the bundle, a megabyte at a time; raises as `read` does."""
        end = location.offset + location.length
        for offset in range(location.offset, end, _PIECE_SIZE):
            yield self.read(offset, min(_PIECE_SIZE, end - offset))

    def response(self, url: str, variant_key: str | None = None) -> Response:
        """Load the response for `url` and, where it has variants, for `variant_key` (`gzip;en`).

        Raises `NotInBundle`, and `ResponseError` for a response that breaks a step of 3.4.
        """
        return self.load(locate(self.metadata, url, variant_key))

    def select(self, url: str, request_headers: Mapping[str, str]) -> Response:
        """Load the response that fits a request best (HTTP Representation Variants, draft-05, section 4).

        Raises `NotInBundle` where no variant is acceptable, and as `response` does.
        """
        return self.load(select_location(self.metadata, url, request_headers))

    def exchanges(self) -> Iterator[StoredExchange]:
        """Yield every URL and variant key with its response, or with its error; ordered as `Metadata.locations`."""
        for url, variant_key, location, response in self._each(self.load):
            yield StoredExchange(url, variant_key, location, response)

    def heads(self) -> Iterator[tuple[str, str | None, Location, ResponseHead | ResponseError]]:
        """Yield every URL, variant key and location with the head of its response, or the error; as `exchanges`."""
        return self._each(self.head)

    def _each(
        self, load: Callable[[Location], _Result]
    ) -> Iterator[tuple[str, str | None, Location, _Result | ResponseError]]:
        last: Location | None = None
        for url, variant_key, location in self.metadata.locations():
            if location != last:
                last = location
                try:
                    found: _Result | ResponseError = load(location)
                except ResponseError as error:
                    found = error
            yield url, variant_key, location, found

    def head(self, location: Location, *, profile: Profile | None = None) -> ResponseHead:
        """Load the response at a location of `metadata.requests` up to its payload, which is there (3.4).

        `profile` replaces the one that the bundle was opened with. Raises `ResponseError`, and as `read` does.
        """
        start = self.start + location.offset
        first = self._source.read(start, min(location.length, _FIRST_READ_SIZE))

        def read(offset: int, length: int) -> memoryview:
            begin = offset - start
            return first[begin : begin + length] if begin + length <= len(first) else self._source.read(offset, length)

        fallback_url = self.metadata.primary_url
        parser = response_parser(location, profile=profile or self.profile, fallback_url=fallback_url)
        head = drive(parser, read, self.start)
        if start + location.length > self._source.size:
            fault, offset = f"the payload of {head.payload.length} bytes is cut", self.start + head.payload.offset
            raise ResponseError(fault, step="3.4 step 12", offset=offset, fallback_url=fallback_url)
        return head

    def load(self, location: Location, *, profile: Profile | None = None) -> Response:
        """Load the response at a location with its payload, as `head` does."""
        head = self.head(location, profile=profile)
        return Response(head.status, head.stored_headers, self.read(head.payload.offset, head.payload.length))

    def decode(self, location: Location) -> DecodedResponse:
        """Open the response at a location, verified and decoded if it was signed; raises as `head` does."""
        head = self.head(location)
        decoding = mi_decoding_parser(head.stored_headers, head.payload, fallback_url=self.metadata.primary_url)
        return DecodedResponse(head.status, self._run(decoding), head.payload, self)

    def _run(self, parser: Parser[_Result]) -> _Result:
        """Run a parser on the bundle; offsets in its errors are those of the file."""
        return drive(parser, self._source.read, self.start)


def locate(metadata: Metadata, url: str, variant_key: str | None = None) -> Location:
    """Return the location for `url` and, where it has variants, for `variant_key` (`gzip;en`); raises `NotInBundle`."""
    found = _find(metadata, url)
    if isinstance(found, Location):
        if variant_key is not None:
            raise NotInBundle(f"{url} has no variants; leave out the variant key {variant_key!r}")
        return found
    values = parse_key(variant_key or "")
    location = found.locations.get(write_key(values)) if values else None
    if location is None:
        fault = f"has no variant {variant_key!r}" if variant_key else "has variants"
        raise NotInBundle(f"{url} {fault}; name one of {_keys(found)}, or select one by request headers")
    return location


def select_location(metadata: Metadata, url: str, request_headers: Mapping[str, str]) -> Location:
    """Return the location that fits a request best (HTTP Representation Variants, draft-05, section 4).

    Raises `NotInBundle` where the URL is not there or no variant is acceptable.
    """
    found = _find(metadata, url)
    if isinstance(found, Location):
        return found
    key = select_key(parse_variants(found.variants) or (), request_headers.items())
    if key is None:
        raise NotInBundle(f"{url} has no variant that the request accepts, only {_keys(found)}")
    return found.locations[key]


def find(metadata: Metadata, url: str) -> Location | VariantSet | None:
    """Return what the bundle has for a URL in any form, with or without fragment; None if nothing."""
    found = metadata.requests.get(url)
    if found is None:
        if not isinstance(url, str):
            raise ConfigurationError(f"expected a URL such as 'https://example.com/', got {url!r:.200}")
        normal = parse_url(url)
        found = metadata.requests.get(without_fragment(normal)) if normal else None
    return found


def _find(metadata: Metadata, url: str) -> Location | VariantSet:
    found = find(metadata, url)
    if found is None:
        raise NotInBundle(f"{url[:200]} is not in the bundle")
    return found


def _keys(found: VariantSet) -> str:
    return ", ".join(islice(found.locations, _MAX_KEYS_NAMED))


def reject_overlapping_responses(bundle: Bundle) -> None:
    """Raise `HeadgateError` for a bundle whose responses together are longer than itself.

    Only responses that are complete count.
    """
    size = bundle.size
    locations = (location for location, _ in bundle.metadata.in_file_order())
    total = sum(one.length for one in locations if one.offset + one.length <= size)
    if total > size:
        raise HeadgateError(
            f"the responses overlap: {total} bytes in a bundle of {size}; refusing to copy all of them, use get for "
            "single ones"
        )
