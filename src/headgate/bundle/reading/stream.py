"""Bundles that are still arriving: metadata as soon as its bytes are there, then each response as it streams by.

`StreamReader` is fed bytes in any pieces and gives events; the generators around it do so with an iterable of pieces.
Nothing is held but what the parser waits for: the sections before the first response, then one response's headers.
"""

from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from itertools import groupby
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from headgate.bundle.format.incremental import Bytes, Parser, ReadRequest
from headgate.bundle.format.integrity_block import integrity_block_parser
from headgate.bundle.format.metadata import metadata_parser
from headgate.bundle.format.response import response_parser
from headgate.bundle.model import Location, Metadata, Profile, ResponseHead, VariantSet
from headgate.errors import BundleError, ResponseError

__all__ = [
    "MAX_METADATA_SIZE",
    "EndEvent",
    "StreamEvent",
    "HeadEvent",
    "Keys",
    "MetadataEvent",
    "PayloadEvent",
    "ErrorEvent",
    "StreamReader",
    "aread_stream",
    "read_stream",
]

MAX_METADATA_SIZE: Final = 64 * 1024 * 1024
"""Bytes of one section that a stream may have us hold; the document sets no bound."""

_Result = TypeVar("_Result")

Keys: TypeAlias = tuple[tuple[str, str | None], ...]
"""The URLs and variant keys that one response answers."""


class MetadataEvent(Struct, frozen=True):
    """The metadata is there; the first event of a stream, and with no event before it the stream is refused."""

    metadata: Metadata


class HeadEvent(Struct, frozen=True):
    """A response begins."""

    keys: Keys
    head: ResponseHead


class PayloadEvent(Struct, frozen=True):
    """The next piece of the payload of the response that began last."""

    chunk: bytes


class EndEvent(Struct, frozen=True):
    """The response that began last is complete."""


class ErrorEvent(Struct, frozen=True):
    """A response is refused: in place of a head, or, where the stream is cut, in place of an end."""

    keys: Keys
    error: ResponseError


StreamEvent: TypeAlias = MetadataEvent | HeadEvent | PayloadEvent | EndEvent | ErrorEvent

_Work: TypeAlias = Generator[ReadRequest, Bytes, None]


class StreamReader:
    """Reads a bundle from a stream: feed it pieces, take the events each completes, and close it at the end."""

    def __init__(
        self, *, profile: Profile = "strict", base_url: str | None = None, max_metadata: int = MAX_METADATA_SIZE
    ) -> None:
        self._profile = profile
        self._base_url = base_url
        self._max_metadata = max_metadata
        self._buffer = bytearray()
        self._buffer_start = 0
        self._events: list[StreamEvent] = []
        self._closed = False
        self._bundle_start = 0
        self._responses_begin = False
        self._partial = False
        self._work = self._run()
        self._need: ReadRequest | None = next(self._work)

    def feed(self, piece: Bytes) -> list[StreamEvent]:
        """Take the next bytes of the stream, and give the events that they complete.

        Raises `FormatError` and `VersionError` when the metadata is refused; then the reader is at its end.
        """
        if self._need is not None:
            self._buffer += piece
            self._advance()
        return self._taken()

    def close(self) -> list[StreamEvent]:
        """Say that the stream has ended: what it cut is refused. Raises as `feed` does."""
        self._closed = True
        self._advance()
        return self._taken()

    def _taken(self) -> list[StreamEvent]:
        events, self._events = self._events, []
        return events

    def _advance(self) -> None:
        """Send the work what it needs while that is there; after the end of the stream, whatever is left of it."""
        while self._need is not None:
            offset, length = self._need
            self._forget_before(offset)
            available = self._buffer_start + len(self._buffer) - offset
            # What is too much to hold is as if the stream ended there: the parser knows which step that breaks.
            too_much = not self._responses_begin and length > self._max_metadata
            enough = min(length, 1) if too_much or self._partial else length
            if available < enough and not self._closed:
                return
            start = max(offset - self._buffer_start, 0)
            piece = bytes(self._buffer[start : start + max(min(length, available), 0)])
            try:
                self._need = self._work.send(piece)
            except StopIteration:
                self._need = None
                self._buffer.clear()
            except BundleError as error:
                self._need = None
                if too_much:
                    error.reason += f", or longer than the {self._max_metadata} bytes of a section that are held"
                raise

    def _run(self) -> _Work:
        block = yield from integrity_block_parser()
        self._bundle_start = block.length if block else 0
        metadata = yield from self._shifted(metadata_parser(profile=self._profile, base_url=self._base_url))
        self._responses_begin = True
        self._events.append(MetadataEvent(metadata))
        position = metadata.sections[-1].offset
        for location, keys in _in_order(metadata):
            if location.offset < position:
                overlap = (
                    f"the response begins inside another, which ends at byte {position}, and the stream is past it"
                )
                self._events.append(ErrorEvent(keys, _refused(overlap, "3.4 step 1", location.offset, metadata)))
                continue
            yield from self._response(location, keys, metadata)
            position = location.offset + location.length

    def _response(self, location: Location, keys: Keys, metadata: Metadata) -> _Work:
        parser = response_parser(location, profile=self._profile, fallback_url=metadata.primary_url)
        # The parser asks for as much as headers usually take, and makes do with what has arrived of it.
        self._partial = True
        try:
            head = yield from self._shifted(parser)
        except ResponseError as error:
            self._events.append(ErrorEvent(keys, error))
            return
        self._events.append(HeadEvent(keys, head))
        offset, left = head.payload.offset + self._bundle_start, head.payload.length
        while left:
            self._partial = True
            chunk = bytes((yield ReadRequest(offset, left)))
            self._partial = False
            if not chunk:
                cut = f"the payload of {head.payload.length} bytes is cut"
                begin = head.payload.offset + self._bundle_start
                self._events.append(ErrorEvent(keys, _refused(cut, "3.4 step 12", begin, metadata)))
                return
            self._events.append(PayloadEvent(chunk))
            offset, left = offset + len(chunk), left - len(chunk)
        self._events.append(EndEvent())

    def _shifted(self, parser: Parser[_Result]) -> Parser[_Result]:
        """Let a parser count from the bundle's first byte, which may stand behind an integrity block."""
        start = self._bundle_start
        try:
            offset, length = next(parser)
            while True:
                found = yield ReadRequest(offset + start, length)
                self._partial = False
                offset, length = parser.send(found)
        except StopIteration as done:
            result: _Result = done.value
            return result
        except BundleError as error:
            error.offset += start
            raise

    def _forget_before(self, offset: int) -> None:
        passed = min(offset - self._buffer_start, len(self._buffer))
        if passed > 0:
            del self._buffer[:passed]
            self._buffer_start += passed


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
    """Yield as `read_stream` does, from pieces that are waited for."""
    reader = StreamReader(profile=profile, base_url=base_url)
    async for piece in pieces:
        for event in reader.feed(piece):
            yield event
    for event in reader.close():
        yield event


def _in_order(metadata: Metadata) -> Iterator[tuple[Location, Keys]]:
    """Give each location once, in the order of the file, with all the keys that share it."""
    listed: list[tuple[Location, str, str | None]] = []
    for url, found in metadata.requests.items():
        if isinstance(found, VariantSet):
            listed += [(location, url, key) for key, location in found.locations.items()]
        else:
            listed.append((found, url, None))
    listed.sort(key=lambda entry: (entry[0].offset, entry[0].length))
    for (offset, length), shared in groupby(listed, key=lambda entry: (entry[0].offset, entry[0].length)):
        yield Location(offset, length), tuple((url, key) for _, url, key in shared)


def _refused(reason: str, step: str, offset: int, metadata: Metadata) -> ResponseError:
    return ResponseError(reason, step=step, offset=offset, fallback_url=metadata.primary_url)
