"""Open bundles: load any response of a bundle in a file or in memory.

Bytes are read when they are needed, so one response of a large bundle costs that response alone. Bundles that are still
arriving are read by `headgate.bundle.stream`.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.incremental import ByteSource, Parser, drive
from headgate.bundle.format.integrity_block import IntegrityBlock, integrity_block_parser
from headgate.bundle.format.merkle_integrity import DecodedResponse, decode_response
from headgate.bundle.format.metadata import metadata_parser, trailer_parser
from headgate.bundle.format.response import FIRST_READ_SIZE, decode_head, response_error
from headgate.bundle.model import (
    Location,
    Metadata,
    Profile,
    Response,
    StoredExchange,
    VariantSet,
    Version,
)
from headgate.bundle.variants import parse_key, parse_variants, select_key, write_key
from headgate.errors import ConfigurationError, HeadgateError, NotInBundle, ResponseError
from headgate.http.url import parse_url, without_fragment

_Result = TypeVar("_Result")
_MAX_KEYS_NAMED = 12


class Bundle:
    """An open bundle, made by `open_bundle`: a context manager, and a collection of URLs."""

    metadata: Metadata
    """Version, URLs, sections, and where each response is."""
    integrity_block: IntegrityBlock | None
    """The integrity block before the bundle, unverified; None without one, and for a bundle found from its end."""

    def __init__(self, source: ByteSource, *, profile: Profile, from_end: bool, base_url: str | None) -> None:
        self.profile = profile
        self._source = source
        self._start, self._end = 0, source.size
        self.integrity_block = None
        if from_end:
            self._start = self._run(trailer_parser(source.size))
        else:
            self.integrity_block = self._run(integrity_block_parser())
            self._start = self.integrity_block.length if self.integrity_block else 0
        self.metadata = self._run(metadata_parser(profile=profile, base_url=base_url))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; payloads that were returned keep the mapping open while they exist."""
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

    @property
    def start(self) -> int:
        """Bytes before the bundle: an integrity block, or what it was appended to."""
        return self._start

    @property
    def size(self) -> int:
        """Bytes of `raw`."""
        return self._end - self._start

    @property
    def raw(self) -> memoryview:
        """The bundle's own bytes, to the end of what it was opened from."""
        return self._source.read(self._start, self.size)

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
        """Yield every URL and variant key with its response, or with its error; ordered as `locations`."""
        last: Location | None = None
        response: Response | ResponseError
        for url, variant_key, location in self.locations():
            if location != last:
                last = location
                try:
                    response = self.load(location)
                except ResponseError as error:
                    response = error
            yield StoredExchange(url, variant_key, location, response)

    def locations(self) -> Iterator[tuple[str, str | None, Location]]:
        """Yield every URL and variant key with its location.

        URLs come in the order in which their first responses are in the file, the variants of one in row-major order.
        """
        for url, found in sorted(self.metadata.requests.items(), key=lambda entry: entry[1].offset):
            if isinstance(found, Location):
                yield url, None, found
            else:
                for key, location in found.locations.items():
                    yield url, key, location

    def load(self, location: Location, *, profile: Profile | None = None) -> Response:
        """Load the response at a location of `metadata.requests` (3.4); raises `ResponseError`.

        `profile` replaces the one that the bundle was opened with.
        """
        profile = profile or self.profile
        read, start, length = self._source.read, self._start + location.offset, location.length
        size = length if length < FIRST_READ_SIZE else FIRST_READ_SIZE
        try:
            # As `response_parser`, without the cost of a generator and of a `ResponseHead`.
            found = decode_head(read(start, size).tobytes(), size, length, profile)
            while isinstance(found, int):
                found = decode_head(read(start, found).tobytes(), found, length, profile)
            status, headers, begin = found
            payload = read(start + begin, length - begin)
            if len(payload) < length - begin:
                raise StepError(f"the payload of {length - begin} bytes is cut", "3.4 step 12", begin)
        except StepError as error:
            refusal = response_error(error, location, self.metadata.primary_url)
            refusal.offset += self._start
            raise refusal from None
        return Response(status, headers, payload)

    def decode(
        self, location: Location, response: Response, *, used: Callable[[memoryview], None] | None = None
    ) -> DecodedResponse:
        """Decode the response at a location, verified if it was signed; raises `ResponseError`."""
        end = self._start + location.offset + location.length
        return decode_response(response, end, fallback_url=self.metadata.primary_url, used=used)

    def _run(self, parser: Parser[_Result]) -> _Result:
        """Run a parser on the bundle; offsets in its errors are those of the file."""
        return drive(parser, self._source.read, self._start)


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
    key = select_key(parse_variants(found.variants) or (), request_headers)
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
    locations: set[Location] = set()
    for found in bundle.metadata.requests.values():
        locations.update(found.locations.values() if isinstance(found, VariantSet) else (found,))
    total = sum(one.length for one in locations if one.offset + one.length <= size)
    if total > size:
        raise HeadgateError(
            f"the responses overlap: {total} bytes in a bundle of {size}; refusing to copy all of them, use get for "
            "single ones"
        )
