"""Read bundles that are still arriving: the metadata once its bytes are there, then each response as it arrives.

`StreamReader` takes pieces of bytes and returns events; `read_stream` and `aread_stream` do so for an iterable of
pieces. It holds only what a parser waits for: one section before the responses, then one response's headers.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import groupby
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec import Struct

from headgate.bundle.format.cbor import LONGEST_HEAD
from headgate.bundle.format.incremental import Bytes, Parser, shifted
from headgate.bundle.format.integrity_block import integrity_block_parser
from headgate.bundle.format.metadata import metadata_parser
from headgate.bundle.format.response import FIRST_READ_SIZE, decode_response_head
from headgate.bundle.model import Location, Metadata, Profile, ResponseHead, VariantSet
from headgate.errors import BundleError, ConfigurationError, ResponseError

MAX_METADATA_SIZE: Final = 64 * 1024 * 1024
"""Maximum bytes of one section that are held; the document sets no limit."""

Keys: TypeAlias = tuple[tuple[str, str | None], ...]
"""The URLs and variant keys that share one response."""


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


class StreamState(Enum):
    """What a `StreamReader` does with the next bytes."""

    METADATA = auto()
    """Loads the integrity block, if there is one, and the metadata."""
    BETWEEN = auto()
    """Looks for the next response in the order of the file; needs no bytes."""
    HEAD = auto()
    """Waits for a response's headers."""
    PAYLOAD = auto()
    """Passes a payload on."""
    DONE = auto()
    """Ignores all bytes."""


class StateOutcome(Enum):
    """How a state ended."""

    LOADED = auto()
    REFUSED = auto()
    """The bytes break a step of the document."""
    FOUND = auto()
    OVERLAPPING = auto()
    """The response begins before the end of one that was read already."""
    NONE_LEFT = auto()
    COMPLETE = auto()
    CUT = auto()
    """The stream ended inside the payload."""


TRANSITIONS: Final[Mapping[tuple[StreamState, StateOutcome], StreamState]] = MappingProxyType(
    {
        (StreamState.METADATA, StateOutcome.LOADED): StreamState.BETWEEN,
        (StreamState.METADATA, StateOutcome.REFUSED): StreamState.DONE,
        (StreamState.BETWEEN, StateOutcome.FOUND): StreamState.HEAD,
        (StreamState.BETWEEN, StateOutcome.OVERLAPPING): StreamState.BETWEEN,
        (StreamState.BETWEEN, StateOutcome.NONE_LEFT): StreamState.DONE,
        (StreamState.HEAD, StateOutcome.LOADED): StreamState.PAYLOAD,
        (StreamState.HEAD, StateOutcome.REFUSED): StreamState.BETWEEN,
        (StreamState.PAYLOAD, StateOutcome.COMPLETE): StreamState.BETWEEN,
        (StreamState.PAYLOAD, StateOutcome.CUT): StreamState.BETWEEN,
    }
)


class StreamReader:
    """Reads a bundle from a stream: `feed` it the bytes as they arrive, take the events, and `close` it at the end."""

    def __init__(
        self, *, profile: Profile = "strict", base_url: str | None = None, max_metadata: int = MAX_METADATA_SIZE
    ) -> None:
        self.state = StreamState.METADATA
        self._profile: Profile = profile
        self._max_metadata = max_metadata
        self._buffer = bytearray()
        self._position = 0
        """Where in the stream the buffer begins."""
        self._is_closed = False
        self._events: list[StreamEvent] = []
        self._start = 0
        """Where in the stream the bundle begins."""
        self._loader = self._load(base_url)
        self._request = next(self._loader)
        self._responses: Iterator[tuple[Location, Keys]] = iter(())
        self._fallback_url: str | None = None
        self._read_to = 0
        """Where in the bundle the last response ends that was begun."""
        self._location = Location(0, 0)
        """Of the current response."""
        self._keys: Keys = ()
        self._min_head_size = 1
        """Bytes of the response below which its headers cannot be complete."""
        self._payload_start = 0
        """Where in the stream the current payload begins."""
        self._payload = Location(0, 0)
        """Offset in the stream and length of the rest of the current payload."""

    def feed(self, piece: Bytes) -> list[StreamEvent]:
        """Take the next bytes of the stream, and return the events that they complete.

        Raises `FormatError` and `VersionError` for metadata that is refused; the reader then ignores all that follows.
        """
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ConfigurationError(f"a piece of a bundle must be bytes, got {piece!r:.80}")
        if self.state is not StreamState.DONE:
            self._buffer += piece
        return self._advance()

    def close(self) -> list[StreamEvent]:
        """End the stream: what is incomplete is refused. Raises as `feed` does."""
        self._is_closed = True
        return self._advance()

    def _advance(self) -> list[StreamEvent]:
        """Run the states until one waits for bytes."""
        while (outcome := self._run()) is not None:
            self._end(outcome)
        events, self._events = self._events, []
        return events

    def _run(self) -> StateOutcome | None:
        """Work in the current state; return None where it waits for bytes, or ignores them."""
        match self.state:
            case StreamState.METADATA:
                return self._run_metadata()
            case StreamState.BETWEEN:
                return self._run_between()
            case StreamState.HEAD:
                return self._run_head()
            case StreamState.PAYLOAD:
                return self._run_payload()
            case StreamState.DONE:
                return None

    def _end(self, outcome: StateOutcome) -> None:
        self.state = TRANSITIONS[self.state, outcome]
        if self.state is StreamState.DONE:
            self._buffer.clear()

    def _load(self, base_url: str | None) -> Parser[Metadata]:
        block = yield from integrity_block_parser()
        self._start = block.length if block else 0
        return (yield from shifted(metadata_parser(profile=self._profile, base_url=base_url), self._start))

    def _run_metadata(self) -> StateOutcome | None:
        while True:
            offset, length = self._request
            # What is too long to be held is treated as the end of the stream: the parser names the step.
            is_too_long = length > self._max_metadata
            if self._available(offset) < (1 if is_too_long else length) and not self._is_closed:
                return None
            try:
                self._request = self._loader.send(self._peek(offset, length))
            except StopIteration as done:
                metadata: Metadata = done.value
                self._events.append(MetadataEvent(metadata))
                self._responses = _in_file_order(metadata)
                self._fallback_url = metadata.primary_url
                self._read_to = metadata.sections[-1].offset
                return StateOutcome.LOADED
            except BundleError as error:
                if is_too_long:
                    error.reason += f", or exceeds the limit of {self._max_metadata} bytes for a section"
                self._end(StateOutcome.REFUSED)
                raise

    def _run_between(self) -> StateOutcome:
        found = next(self._responses, None)
        if found is None:
            return StateOutcome.NONE_LEFT
        location, keys = found
        if location.offset < self._read_to:
            fault = f"the response begins inside another, which ends at byte {self._start + self._read_to}"
            self._refuse(keys, fault, "3.4 step 1", self._start + location.offset)
            return StateOutcome.OVERLAPPING
        self._location, self._keys = location, keys
        self._read_to = location.offset + location.length
        self._min_head_size = 1
        return StateOutcome.FOUND

    def _run_head(self) -> StateOutcome | None:
        start, size = self._start + self._location.offset, FIRST_READ_SIZE
        while (available := self._available(start)) >= self._min_head_size or self._is_closed:
            source = self._peek(start, size)
            # Fewer bytes than requested mean that there will be no more.
            requested = len(source) + 1 if self._is_closed else len(source)
            try:
                found = decode_response_head(source, requested, self._location, self._profile, self._fallback_url)
            except ResponseError as error:
                error.offset += self._start
                self._events.append(ErrorEvent(self._keys, error))
                return StateOutcome.REFUSED
            if not isinstance(found, int):
                self._events.append(HeadEvent(self._keys, found))
                self._payload_start = self._start + found.payload.offset
                self._payload = Location(self._payload_start, found.payload.length)
                return StateOutcome.LOADED
            size = found
            if len(source) == available:
                # The last bytes that are requested hold a head, which may be one byte long.
                self._min_head_size = size - LONGEST_HEAD + 1
                break
        return None

    def _run_payload(self) -> StateOutcome | None:
        offset, left = self._payload.offset, self._payload.length
        if chunk := self._peek(offset, left):
            self._events.append(PayloadEvent(chunk))
            offset, left = offset + len(chunk), left - len(chunk)
            self._payload = Location(offset, left)
            self._available(offset)
        if not left:
            self._events.append(EndEvent())
            return StateOutcome.COMPLETE
        if not self._is_closed:
            return None
        reason = f"the payload is cut, {left} bytes are missing"
        self._refuse(self._keys, reason, "3.4 step 12", self._payload_start)
        return StateOutcome.CUT

    def _refuse(self, keys: Keys, reason: str, step: str, offset: int) -> None:
        error = ResponseError(reason, step=step, offset=offset, fallback_url=self._fallback_url)
        self._events.append(ErrorEvent(keys, error))

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


def _in_file_order(metadata: Metadata) -> Iterator[tuple[Location, Keys]]:
    """Yield each location once, in the order of the file, with all the keys that share it."""
    listed: list[tuple[Location, str, str | None]] = []
    for url, found in metadata.requests.items():
        if isinstance(found, VariantSet):
            listed += [(location, url, key) for key, location in found.locations.items()]
        else:
            listed.append((found, url, None))
    listed.sort(key=lambda entry: (entry[0].offset, entry[0].length))
    for (offset, length), shared in groupby(listed, key=lambda entry: (entry[0].offset, entry[0].length)):
        yield Location(offset, length), tuple((url, key) for _, url, key in shared)
