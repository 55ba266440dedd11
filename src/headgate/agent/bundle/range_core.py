"""A bundle on a server, read by ranges: which parts to request, which to keep, and what they contain.

Nothing here sends anything: what needs a request is a `Work` for either kind of client. Only bytes that the server has
said it has are requested, whatever lengths the bundle claims.
"""

import mmap
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from msgspec import Struct

from headgate.agent.bundle.fetcher import Download, Reply
from headgate.agent.bundle.range_protocol import LengthChecked, RangeRequest, Resource
from headgate.agent.bundle.session import NEXT_CHUNK, ArrivingBody, Send, Work
from headgate.bundle.api import open_bundle
from headgate.bundle.format.incremental import Bytes, Parser, ReadRequest, drive
from headgate.bundle.format.integrity_block import IntegrityBlock, integrity_block_parser
from headgate.bundle.format.metadata import TRAILER_SIZE, metadata_parser, trailer_parser
from headgate.bundle.format.response import FIRST_READ_SIZE, decode_response_head
from headgate.bundle.model import Location, Metadata, Profile, Response, ResponseHead
from headgate.bundle.reader import Bundle
from headgate.errors import BundleError, ConfigurationError, FetchError, ResponseError

_Result = TypeVar("_Result")

CHUNK_SIZE: Final = 1 << 16
"""Bytes of a payload that are copied at a time."""
MIN_RANGE: Final = 1 << 16
"""Bytes to request at least while metadata is read; that of a small bundle is within them."""


class OpenOptions(Struct, frozen=True):
    """How a bundle is opened; `RangeBundle.open` describes them."""

    url: str
    profile: Profile
    from_end: bool
    base_url: str | None
    require_nosniff: bool
    max_metadata: int
    max_bytes: int

    def __post_init__(self) -> None:
        """Refuse what is not a URL, such as a path."""
        if not isinstance(self.url, str) or not self.url.lower().startswith(("http://", "https://")):
            raise ConfigurationError(
                f"expected an http or https URL of a bundle, got {self.url!r:.200}; use open_bundle for files"
            )


class BegunResponse(Struct, frozen=True):
    """A response whose payload has not, or not all, arrived."""

    head: ResponseHead
    body: ArrivingBody


class _WholeSentError(Exception):
    """The server does not support ranges, and sent the whole resource."""

    def __init__(self, content: mmap.mmap | bytes) -> None:
        super().__init__()
        self.content = content


class RemoteBytes:
    """The bytes of a resource, of which the parts requested so far are kept; `fetch` requests one."""

    def __init__(self, resource: Resource, fetch: Callable[[RangeRequest], Work[bytes]], *, max_metadata: int) -> None:
        self.base = 0
        """Where in the resource the bundle begins."""
        self._resource = resource
        self._request_part = fetch
        self._max_metadata = max_metadata
        self._fetched = 0
        self._parts: list[tuple[int, bytes]] = []

    def parse(self, parser: Parser[_Result]) -> Work[_Result]:
        """Run a parser over these bytes; offsets in its errors count from the resource's first byte."""
        try:
            request = next(parser)
            while True:
                request = parser.send((yield from self.read(request)))
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += self.base
            raise

    def read(self, request: ReadRequest) -> Work[bytes]:
        """Return bytes of the bundle; fewer where the resource ends earlier.

        Raises `FetchError` where more would have to be fetched than `max_metadata`.
        """
        position = self.base + request.offset
        stop = position + request.length
        taken: list[bytes | memoryview] = []
        while position < self._within(stop):
            part = self._kept(position) or (yield from self._fetch(position, stop))
            taken.append(part[: stop - position])
            position += len(taken[-1])
        return b"".join(taken)

    def place(self, location: Location) -> bytes | RangeRequest:
        """Return the bytes at a location if they are kept; else the request for all of them that there are."""
        start = self.base + location.offset
        length = max(0, self._within(start + location.length) - start)
        part = self._kept(start) if length else b""
        return bytes(part[:length]) if part is not None and len(part) >= length else RangeRequest(start, length)

    def discard(self, before: int) -> None:
        """Discard what precedes an offset in the bundle."""
        start = self.base + before
        self._parts = [
            (max(offset, start), part[max(0, start - offset) :])
            for offset, part in self._parts
            if offset + len(part) > start
        ]

    def _fetch(self, start: int, stop: int) -> Work[bytes]:
        # Until the server has said how much there is, no length that the bundle claims is requested.
        size = MIN_RANGE if self._resource.length is None else max(stop - start, MIN_RANGE)
        request = RangeRequest(start, min(self._within(start + size), self._next_kept(start)) - start)
        if self._fetched + request.length > self._max_metadata:
            raise FetchError(
                f"{self._resource.url}: the metadata exceeds the limit of {self._max_metadata} bytes (max_metadata)"
            )
        part = yield from self._request_part(request)
        self._fetched += len(part)
        self._parts.append((start, part))
        return part

    def _within(self, stop: int) -> int:
        return stop if self._resource.length is None else min(stop, self._resource.length)

    def _kept(self, position: int) -> memoryview | None:
        for offset, part in self._parts:
            if offset <= position < offset + len(part):
                return memoryview(part)[position - offset :]
        return None

    def _next_kept(self, position: int) -> int:
        """Return where the next kept part begins, which is not requested again."""
        return min((offset for offset, _ in self._parts if offset > position), default=1 << 64)


class RangeCore:
    """What `RangeBundle` and `AsyncRangeBundle` share: everything but the sending."""

    metadata: Metadata
    integrity_block: IntegrityBlock | None

    def __init__(self, options: OpenOptions) -> None:
        self._options = options
        self._resource = Resource(options.url, require_nosniff=options.require_nosniff)
        self._remote = RemoteBytes(self._resource, self._fetch, max_metadata=options.max_metadata)
        self._local: Bundle | None = None
        """The bundle, where the server sent it whole."""
        self.integrity_block = None

    @property
    def url(self) -> str:
        """Where the bundle is, after redirects."""
        return self._resource.url

    @property
    def start(self) -> int:
        """Bytes before the bundle."""
        return self._remote.base

    @property
    def size(self) -> int:
        """Bytes from the bundle's first to the last of the resource."""
        return self._local.size if self._local is not None else (self._resource.length or 0) - self.start

    def open(self) -> Work[None]:
        """Load the metadata; raises `FetchError` and `BundleError`."""
        try:
            yield from self._open_by_ranges()
        except _WholeSentError as sent:
            self._open_whole(sent.content)

    def close(self) -> None:
        """Close a bundle that was sent whole."""
        if self._local is not None:
            self._local.close()

    def load(self, location: Location) -> Work[Response]:
        """Load a whole response; raises `FetchError` for one that is longer than `max_bytes`."""
        if location.length > self._options.max_bytes:
            limit = self._options.max_bytes
            raise FetchError(
                f"{self.url}: a response of {location.length} bytes; the limit is {limit}, or stream the response"
            )
        if self._local is not None:
            return self._local.load(location)
        part = self._remote.place(location)
        view = memoryview(part if isinstance(part, bytes) else (yield from self._fetch(part)))
        head = self._complete_head(location, view, len(view))
        return Response(head.status, head.stored_headers, view[head.payload.offset - location.offset :])

    def begin(self, location: Location) -> Work[BegunResponse]:
        """Wait for the headers of a response, of which nothing is kept but what arrived with them."""
        if self._local is not None:
            response = self._local.load(location)
            length = len(response.payload)
            head = ResponseHead(response.status, response.stored_headers, Location(0, length))
            return BegunResponse(head, ArrivingBody(payload_pieces(response.payload)))
        part = self._remote.place(location)
        if isinstance(part, bytes):
            head, rest = self._complete_head(location, part, len(part)), None
            payload = memoryview(part)[head.payload.offset - location.offset :]
            return BegunResponse(head, ArrivingBody(payload_pieces(payload), rest))
        reply: Reply = yield Send(self.url, self._resource.fields(part))
        length = self._resource.judge(part, reply.status, reply.fields, url=reply.url) or 0
        checked = LengthChecked(reply.url, length)
        received = bytearray()
        needed = FIRST_READ_SIZE
        while True:
            if len(received) >= min(needed, length):
                found = self._head(location, received, needed, is_all=len(received) == length)
                if not isinstance(found, int):
                    break
                needed = found
                continue
            chunk = yield NEXT_CHUNK
            if chunk is None:
                checked.end()
            else:
                received += checked.take(chunk)
        self._check_length(location, found, length)
        payload = memoryview(received)[found.payload.offset - location.offset :]
        return BegunResponse(found, ArrivingBody(payload_pieces(payload), checked))

    def _open_by_ranges(self) -> Work[None]:
        options, remote = self._options, self._remote
        if options.from_end:
            tail = yield from self._fetch(RangeRequest(None, TRAILER_SIZE))
            size = self._resource.length or 0
            remote.base = drive(trailer_parser(size), lambda _offset, length: tail[:length])
        else:
            self.integrity_block = yield from remote.parse(integrity_block_parser())
            remote.base = self.integrity_block.length if self.integrity_block else 0
        base_url = options.base_url or self.url
        self.metadata = yield from remote.parse(metadata_parser(profile=options.profile, base_url=base_url))
        remote.discard(self.metadata.sections[-1].offset)

    def _open_whole(self, content: mmap.mmap | bytes) -> None:
        options = self._options
        base_url = options.base_url or self.url
        bundle = open_bundle(content, profile=options.profile, from_end=options.from_end, base_url=base_url)
        self._local, self._remote.base = bundle, bundle.start
        self.metadata, self.integrity_block = bundle.metadata, bundle.integrity_block

    def _fetch(self, request: RangeRequest) -> Work[bytes]:
        reply: Reply = yield Send(self.url, self._resource.fields(request))
        length = self._resource.judge(request, reply.status, reply.fields, url=reply.url)
        if length is None:
            with Download(self.url, reply.fields, max_bytes=self._options.max_bytes) as download:
                while (chunk := (yield NEXT_CHUNK)) is not None:
                    download.add(chunk)
                raise _WholeSentError(download.mapped())
        body = ArrivingBody(iter(()), LengthChecked(reply.url, length))
        parts: list[bytes] = []
        while chunks := (yield from body.chunks()):
            parts += chunks
        return b"".join(parts)

    def _complete_head(self, location: Location, source: Bytes, length: int) -> ResponseHead:
        """Decode the head of a response whose bytes are all here."""
        found: ResponseHead | int = FIRST_READ_SIZE
        while isinstance(found, int):
            found = self._head(location, source, found, is_all=True)
        self._check_length(location, found, length)
        return found

    def _head(self, location: Location, source: Bytes | bytearray, size: int, *, is_all: bool) -> ResponseHead | int:
        first = bytes(source[:size])
        requested = size if is_all else len(first)
        try:
            return decode_response_head(first, requested, location, self._options.profile, self.metadata.primary_url)
        except ResponseError as error:
            error.offset += self.start
            raise

    def _check_length(self, location: Location, head: ResponseHead, length: int) -> None:
        """Refuse a response of which the resource has only `length` bytes."""
        if length < location.length:
            fault = f"the payload of {head.payload.length} bytes is cut"
            offset = self.start + head.payload.offset
            raise ResponseError(fault, step="3.4 step 12", offset=offset, fallback_url=self.metadata.primary_url)


def payload_pieces(payload: memoryview) -> Iterator[bytes]:
    """Yield a payload that is here; no more than a chunk is copied at a time."""
    for start in range(0, len(payload), CHUNK_SIZE):
        yield bytes(payload[start : start + CHUNK_SIZE])
