"""What an open bundle on a server knows, whichever kind of client reads it: everything but the sending.

A response whose bytes are here is interpreted at once; one that is still arriving, as soon as its head is there.
"""

import mmap
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from msgspec import Struct

from headgate.agent.bundle.parts import Ask, Resource
from headgate.agent.bundle.remote import Fetching, RemoteBytes, opening
from headgate.bundle.api import open_bundle
from headgate.bundle.format.incremental import Bytes, ReadRequest
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import NOSNIFF, Location, Metadata, Profile, Response, ResponseHead
from headgate.bundle.reading.reader import Bundle
from headgate.errors import BundleError, FetchError, ResponseError

__all__ = [
    "CHUNK",
    "HeadReading",
    "Opening",
    "RemoteBundle",
    "StreamedResponse",
    "WholeSent",
    "in_chunks",
    "streamed",
    "streamed_whole",
]

CHUNK: Final = 1 << 16
"""Bytes of a payload that are copied at a time."""

_Chunks = TypeVar("_Chunks")


class Opening(Struct, frozen=True):
    """How a bundle is opened; what each is, `RangeBundle.open` says."""

    url: str
    profile: Profile
    from_end: bool
    base_url: str | None
    require_nosniff: bool
    max_metadata: int
    max_bytes: int


class StreamedResponse(Struct, Generic[_Chunks], frozen=True):
    """A response whose payload is still to come."""

    status: int
    stored_headers: dict[str, str]
    """The headers as the bundle has them: names in lower case, values as Latin-1."""
    length: int
    """Bytes of the payload."""
    chunks: _Chunks
    """The payload; to be had once, while the response is open."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers with `x-content-type-options: nosniff`, so that nobody guesses a media type (3.4 step 9)."""
        return {**self.stored_headers, NOSNIFF[0]: NOSNIFF[1]}


class WholeSent(Exception):
    """The server sends no ranges, and has sent the whole resource: here it is."""

    def __init__(self, content: mmap.mmap | bytes) -> None:
        super().__init__()
        self.content = content


class RemoteBundle:
    """The common part of `RangeBundle` and `AsyncRangeBundle`."""

    metadata: Metadata
    """What the bundle says of itself."""

    def __init__(self, how: Opening) -> None:
        self._how = how
        self._resource = Resource(how.url, require_nosniff=how.require_nosniff)
        self._remote = RemoteBytes(self._resource, max_metadata=how.max_metadata)
        self._bundle: Bundle | None = None

    @property
    def start(self) -> int:
        """Bytes before the bundle: an integrity block, or what it was appended to."""
        return self._remote.base

    @property
    def url(self) -> str:
        """Where the bundle is, behind the redirects."""
        return self._resource.url

    def _program(self) -> Fetching[Metadata]:
        how = self._how
        return opening(self._remote, profile=how.profile, from_end=how.from_end, base_url=how.base_url)

    def _read_whole(self, content: mmap.mmap | bytes) -> None:
        """Open a bundle that was sent whole."""
        how = self._how
        base_url = how.base_url or self.url
        self._bundle = open_bundle(content, profile=how.profile, from_end=how.from_end, base_url=base_url)
        self._remote.base = self._bundle.start
        self.metadata = self._bundle.metadata

    def _forget(self) -> None:
        if self._bundle is not None:
            self._bundle.close()

    def _place(self, location: Location) -> Bytes | Ask:
        """Give the bytes of a response, or say how to ask for all of them that there are."""
        if self._bundle is None:
            return self._remote.place(location)
        return self._bundle.raw[location.offset : location.offset + location.length]

    def _place_whole(self, location: Location) -> Bytes | Ask:
        """Do so for a response that will be held whole."""
        if location.length > self._how.max_bytes:
            raise FetchError(
                f"{self.url}: a response of {location.length} bytes, where {self._how.max_bytes} are allowed; stream it"
            )
        return self._place(location)

    def _reading(self, location: Location) -> "HeadReading":
        return HeadReading(
            location, base=self._remote.base, profile=self._how.profile, fallback_url=self.metadata.primary_url
        )

    def _interpreted(self, location: Location, source: Bytes) -> Response:
        """Load the response that these bytes, from its location on, are (3.4)."""
        reading = self._reading(location)
        view = memoryview(source)
        head = reading.head_in(view)
        payload = view[head.payload.offset - location.offset :]
        return Response(head.status, head.stored_headers, payload)


class HeadReading:
    """Reads a response's head out of the response's own bytes, here or as they arrive."""

    def __init__(self, location: Location, *, base: int, profile: Profile, fallback_url: str | None) -> None:
        self._location = location
        self._base = base
        self._fallback_url = fallback_url
        self._received = bytearray()
        self._parser = response_parser(location, profile=profile, fallback_url=fallback_url)
        self._need: ReadRequest = next(self._parser)
        self._head: ResponseHead | None = None

    def feed(self, chunk: bytes) -> bool:
        """Take the next bytes; True once they hold the head. Raises `ResponseError`."""
        self._received += chunk
        with self._placed():
            while self._head is None and self._need.offset + self._need.length <= self._end:
                self._send(self._received)
        return self._head is not None

    def finish(self, length: int) -> ResponseHead:
        """Give the head, where all there is has arrived; `length` is how many bytes of the response there are at all.

        Raises `ResponseError` where that is too few.
        """
        return self._finish(self._received, length)

    def head_in(self, source: memoryview) -> ResponseHead:
        """Give the head in bytes that are all there are; raises `ResponseError`."""
        return self._finish(source, len(source))

    def rest(self) -> bytes:
        """Give the bytes of the payload that arrived with the head."""
        assert self._head is not None
        return bytes(self._received[self._head.payload.offset - self._location.offset :])

    @property
    def _end(self) -> int:
        return self._location.offset + len(self._received)

    def _finish(self, source: bytearray | memoryview, length: int) -> ResponseHead:
        with self._placed():
            while self._head is None:
                self._send(source)
            if length < self._location.length:
                cut = f"the payload of {self._head.payload.length} bytes is cut"
                offset = self._head.payload.offset
                raise ResponseError(cut, step="3.4 step 12", offset=offset, fallback_url=self._fallback_url)
        return self._head

    def _send(self, source: bytearray | memoryview) -> None:
        position = self._need.offset - self._location.offset
        try:
            self._need = self._parser.send(bytes(source[position : position + self._need.length]))
        except StopIteration as done:
            self._head = done.value

    @contextmanager
    def _placed(self) -> Generator[None]:
        """Count the offsets of refusals from where the resource begins."""
        try:
            yield
        except BundleError as error:
            error.offset += self._base
            raise


def streamed(head: ResponseHead, chunks: _Chunks) -> StreamedResponse[_Chunks]:
    """Give the response with this head, and its payload in these chunks."""
    return StreamedResponse(head.status, head.stored_headers, head.payload.length, chunks)


def streamed_whole(response: Response, chunks: _Chunks) -> StreamedResponse[_Chunks]:
    """Give a response that is here as one that streams, its payload in these chunks."""
    return StreamedResponse(response.status, response.stored_headers, len(response.payload), chunks)


def in_chunks(payload: memoryview) -> Iterator[bytes]:
    """Yield the bytes of a payload that is here; no more than a chunk is copied at a time."""
    for start in range(0, len(payload), CHUNK):
        yield bytes(payload[start : start + CHUNK])
