"""Read bundles that are still arriving: the metadata once its bytes are there, then each response as it arrives.

`StreamReader` takes pieces of bytes and returns events; `read_stream` and `aread_stream` do so for an iterable of
pieces. It holds only what a parser waits for: one section before the responses, then one response's headers.
"""

from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import TypeAlias, TypeVar

from msgspec import Struct

from headgate.bundle.format.incremental import Bytes, Parser
from headgate.bundle.format.integrity_block import integrity_block_parser
from headgate.bundle.format.metadata import MAX_UNTRUSTED_SECTION, metadata_parser
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import Keys, Location, Metadata, Profile, ResponseHead
from headgate.errors import BundleError, ConfigurationError, ResponseError

_Result = TypeVar("_Result")


class MetadataEvent(Struct, frozen=True):
    """The metadata has arrived. Always the first event: errors before it are raised."""

    metadata: Metadata


class HeadEvent(Struct, frozen=True):
    """A response begins."""

    keys: Keys
    head: ResponseHead


class PayloadEvent(Struct, frozen=True):
    """The next part of the current response's payload."""

    chunk: bytes


class EndEvent(Struct, frozen=True):
    """The current response is complete."""


class ErrorEvent(Struct, frozen=True):
    """A response cannot be read: in place of its head or, where the stream ends early, of its end."""

    keys: Keys
    error: ResponseError


StreamEvent: TypeAlias = MetadataEvent | HeadEvent | PayloadEvent | EndEvent | ErrorEvent


class StreamReader:
    """Reads a bundle from a stream: `feed` it the bytes as they arrive, take the events, and `close` it at the end."""

    def __init__(
        self, *, profile: Profile = "strict", base_url: str | None = None, max_section: int = MAX_UNTRUSTED_SECTION
    ) -> None:
        self._profile: Profile = profile
        self._max_section = max_section
        self._buffer = bytearray()
        self._position = 0
        """Where in the stream the buffer begins."""
        self._is_closed = False
        self._start = 0
        """Where in the stream the bundle begins."""
        self._base_url = base_url
        self._events = self._run()

    def feed(self, piece: Bytes) -> list[StreamEvent]:
        """Take the next bytes of the stream, and return the events that they complete.

        Raises `FormatError` and `VersionError` for metadata that is refused; the reader then ignores all that follows.
        """
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ConfigurationError(f"a piece of a bundle must be bytes, got {piece!r:.80}")
        self._buffer += piece
        return self._take_events()

    def close(self) -> list[StreamEvent]:
        """End the stream: what is incomplete is refused. Raises as `feed` does."""
        self._is_closed = True
        return self._take_events()

    def _take_events(self) -> list[StreamEvent]:
        """Return the events until the next one needs more bytes."""
        events: list[StreamEvent] = []
        for event in self._events:
            if event is None:
                return events
            events.append(event)
        self._buffer.clear()  # all was read, or refused
        return events

    def _run(self) -> Iterator[StreamEvent | None]:
        """Yield the events, and None to wait for bytes."""
        block = yield from self._parse(integrity_block_parser())
        self._start = block.length if block else 0
        metadata = yield from self._parse(
            metadata_parser(profile=self._profile, base_url=self._base_url, max_section=self._max_section)
        )
        yield MetadataEvent(metadata)
        read_to = metadata.sections[-1].offset
        for location, keys in metadata.in_file_order():
            try:
                if location.offset < read_to:
                    fault = f"the response begins inside another, which ends at byte {self._start + read_to}"
                    raise self._error(fault, "3.4 step 1", location.offset, metadata)
                read_to = location.offset + location.length
                yield from self._response(location, keys, metadata)
            except ResponseError as error:
                yield ErrorEvent(keys, error)

    def _parse(self, parser: Parser[_Result]) -> Generator[None, None, _Result]:
        """Run a parser on the bundle as its bytes arrive; offsets in its errors are those of the stream."""
        start = self._start
        try:
            offset, length = next(parser)
            while True:
                while self._available(start + offset) < length and not self._is_closed:
                    yield None
                offset, length = parser.send(self._peek(start + offset, length))
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += start
            raise

    def _response(self, location: Location, keys: Keys, metadata: Metadata) -> Iterator[StreamEvent | None]:
        head = yield from self._parse(
            response_parser(location, profile=self._profile, fallback_url=metadata.primary_url)
        )
        yield HeadEvent(keys, head)
        offset, left = self._start + head.payload.offset, head.payload.length
        while left:
            if chunk := self._peek(offset, left):
                yield PayloadEvent(chunk)
                offset, left = offset + len(chunk), left - len(chunk)
            elif self._is_closed:
                fault = f"the payload is cut, {left} bytes are missing"
                raise self._error(fault, "3.4 step 12", head.payload.offset, metadata)
            else:
                yield None
        yield EndEvent()

    def _error(self, reason: str, step: str, offset: int, metadata: Metadata) -> ResponseError:
        return ResponseError(reason, step=step, offset=self._start + offset, fallback_url=metadata.primary_url)

    def _available(self, offset: int) -> int:
        """Discard what precedes `offset`, and return how many bytes have arrived from there on."""
        passed = min(offset - self._position, len(self._buffer))
        if passed > 0:
            del self._buffer[:passed]
            self._position += passed
        return max(self._position + len(self._buffer) - offset, 0)

    def _peek(self, offset: int, length: int) -> bytes:
        """Return the bytes from `offset` on that have arrived, `length` at most."""
        self._available(offset)
        start = max(offset - self._position, 0)
        return bytes(self._buffer[start : start + length])


def read_stream(
    pieces: Iterable[Bytes], *, profile: Profile = "strict", base_url: str | None = None
) -> Iterator[StreamEvent]:
    """Yield the events of a bundle that arrives in pieces; raises as `StreamReader` does."""
    reader = StreamReader(profile=profile, base_url=base_url)
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.close()


async def aread_stream(
    pieces: AsyncIterable[Bytes], *, profile: Profile = "strict", base_url: str | None = None
) -> AsyncIterator[StreamEvent]:
    """Yield the events of a bundle that arrives in pieces, from an asynchronous iterable; raises as `StreamReader`."""
    reader = StreamReader(profile=profile, base_url=base_url)
    async for piece in pieces:
        for event in reader.feed(piece):
            yield event
    for event in reader.close():
        yield event
