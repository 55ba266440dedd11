"""The front door: open a bundle that is all there, in a file or in memory, and take any response out of it.

A path is mapped into memory and read where it is needed, so that one response out of a large bundle costs that
response. Bundles that are still arriving are read by `headgate.bundle.stream`.
"""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from msgspec import Struct

from headgate.bundle.ending import start_parser
from headgate.bundle.familiar import FamiliarHeads
from headgate.bundle.holder import Holder, Source, hold
from headgate.bundle.integrity import IntegrityBlock, integrity_parser
from headgate.bundle.lookup import locate, select_location
from headgate.bundle.metadata import Location, Metadata, Negotiated, Profile
from headgate.bundle.need import Parser, run
from headgate.bundle.parser import FIRST_READ, NOSNIFF, metadata_parser, read_usual_response, response_parser
from headgate.errors import BundleError, ResponseError

__all__ = ["Bundle", "Response", "Source", "StoredExchange", "open_bundle", "parse_metadata"]

_Result = TypeVar("_Result")


class Response(Struct, frozen=True):
    """A response from a bundle (3.4)."""

    status: int
    stored_headers: dict[str, str]
    """The headers as the bundle has them: names in lower case, values as Latin-1."""
    payload: memoryview
    """As stored, and not copied where the bundle is in memory or mapped; it stays valid when the bundle is closed."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers with `x-content-type-options: nosniff`, so that no media type is guessed (3.4 step 9)."""
        return {**self.stored_headers, NOSNIFF[0]: NOSNIFF[1]}


class StoredExchange(Struct, frozen=True):
    """One URL and variant key, and what is stored for it."""

    url: str
    variant_key: str | None
    location: Location
    response: Response | ResponseError
    """A response that breaks a step of 3.4 is its error, so that it does not hide the others."""


def parse_metadata(
    source: bytes | bytearray | memoryview, *, profile: Profile = "strict", base_url: str | None = None
) -> Metadata:
    """Load a bundle's metadata from its first bytes (3.3): those before the first response are enough.

    Raises `FormatError` and `VersionError`. `base_url` is what the relative URLs of a b2 bundle are relative to.
    """
    return run(metadata_parser(profile=profile, base_url=base_url), memoryview(source).cast("B"))


def open_bundle(
    source: Source, *, profile: Profile = "strict", from_end: bool = False, base_url: str | None = None
) -> "Bundle":
    """Open the bundle in `source`: a path, which is mapped into memory, its bytes, or a seekable binary file.

    With `from_end` the bundle is found by the length at its end (2.2.1), behind whatever it was appended to; else it
    begins at the first byte, or behind an integrity block there. Raises `FormatError`, `VersionError` and, for a file
    that cannot be read, `OSError`. A file that is cut short while it is mapped ends the process that reads it there:
    replace such a file by renaming, or open it yourself and give the file. Threads may share the bundle; a file that
    was given must not be moved to another position by other code meanwhile.
    """
    holder = hold(source)
    try:
        return Bundle(holder, profile=profile, from_end=from_end, base_url=base_url)
    except BaseException:
        holder.close()
        raise


class Bundle:
    """An open bundle; a context manager, made by `open_bundle`."""

    metadata: Metadata
    """What it says of itself."""
    integrity_block: IntegrityBlock | None
    """The block before it, unverified; None where there is none, and when read from its end."""

    def __init__(self, holder: Holder, *, profile: Profile, from_end: bool, base_url: str | None) -> None:
        self.profile = profile
        self._holder = holder
        self._familiar = FamiliarHeads()
        self._start, self._end = 0, holder.size
        self.integrity_block = None
        if from_end:
            self._start = self._run(start_parser(holder.size))
        else:
            self.integrity_block = self._run(integrity_parser())
            self._start = self.integrity_block.length if self.integrity_block else 0
        self.metadata = self._run(metadata_parser(profile=profile, base_url=base_url))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; payloads that were handed out keep the mapping alive while they live."""
        self._holder.close()

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
        return self._holder.read(self._start, self.size)

    def response(self, url: str, variant_key: str | None = None) -> Response:
        """Load the response for `url` and, where it has variants, for `variant_key` (`gzip;en`).

        Raises `NotInBundle`, and `ResponseError` for a response that breaks a step of 3.4.
        """
        return self.load(locate(self.metadata, url, variant_key))

    def select(self, url: str, request_headers: Mapping[str, str]) -> Response:
        """Load the response that fits a request best, as HTTP Representation Variants (draft-05, section 4) has it.

        Raises `NotInBundle` where no variant is acceptable, and as `response` does.
        """
        return self.load(select_location(self.metadata, url, request_headers))

    def exchanges(self) -> Iterator[StoredExchange]:
        """Yield every URL and variant key with its response, ordered as `locations`; a refused one as its error."""
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
        for url, found in sorted(self.metadata.requests.items(), key=_first_offset):
            if isinstance(found, Location):
                yield url, None, found
            else:
                for key, location in found.locations.items():
                    yield url, key, location

    def load(self, location: Location) -> Response:
        """Load the response at a location of `metadata.requests` (3.4); raises `ResponseError`."""
        start = self._start + location.offset
        source = bytes(self._holder.read(start, FIRST_READ))
        found = self._familiar.read(source, location.length)
        status, headers, payload_begins = self._load_new(source, location) if found is None else found
        length = location.length - payload_begins
        payload = self._holder.read(start + payload_begins, length)
        if len(payload) < length:
            fault, offset = f"the payload of {length} bytes is cut", start + payload_begins
            raise ResponseError(fault, step="3.4 step 12", offset=offset, fallback_url=self.metadata.primary_url)
        return Response(status, headers, payload)

    def _load_new(self, source: bytes, location: Location) -> tuple[int, dict[str, str], int]:
        """Load a response that looks like none before: its status, headers, and where in it the payload begins."""
        # Most are of the usual kind even so: those need no parser that can ask for more.
        head = read_usual_response(source, location)
        if head is None:
            fallback_url = self.metadata.primary_url
            head = self._run(response_parser(location, profile=self.profile, fallback_url=fallback_url))
        if "content-type" in head.stored_headers:
            self._familiar.learn(source, head.status)
        return head.status, head.stored_headers, head.payload.offset - location.offset

    def _run(self, parser: Parser[_Result]) -> _Result:
        """Drive a parser; offsets in its refusals are then those of the file."""
        start, read = self._start, self._holder.read
        try:
            offset, length = next(parser)
            while True:
                offset, length = parser.send(read(start + offset, length))
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += start
            raise


def _first_offset(entry: tuple[str, Location | Negotiated]) -> int:
    found = entry[1]
    return found.offset if isinstance(found, Location) else min(found.places[::2])
