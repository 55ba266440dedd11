"""HTTP/2 frames (RFC 9113, section 4): found in the bytes that come, and written.

The law: nothing is collected that need not be. The payload of DATA is given as it comes, in pieces of the very buffer
it was read into, its padding cut off; a frame of a type that nobody knows is passed over; every other frame is small,
or the connection ends, and given whole. A header block is given frame by frame, but nothing can come in between.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from h2.errors import ErrorCodes

from headgate.errors import HeadgateError

__all__ = [
    "ACK", "CONTINUATION", "DATA", "END_HEADERS", "END_STREAM", "GOAWAY", "HEADERS", "HEADER_BYTES",
    "LARGEST_STREAM", "LONGEST_BLOCK", "LONGEST_DATA", "LONGEST_PAYLOAD", "MOST_CONTINUATIONS",
    "PADDED", "PING", "PREFACE", "PRIORITY", "PUSH_PROMISE", "RST_STREAM", "SETTINGS", "WINDOW_UPDATE", "DataBuffer",
    "Frame", "Scanner", "Violation", "goaway", "header", "ping", "rst_stream", "settings", "window_update",
]  # fmt: skip

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client says first (3.4)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08

HEADER_BYTES: Final = 9
"""Bytes of a frame before its payload (4.1)."""
LONGEST_DATA: Final = 1 << 18
"""Bytes of the longest payload that is taken, announced as SETTINGS_MAX_FRAME_SIZE."""
LONGEST_PAYLOAD: Final = 1 << 14
"""Bytes of payload in the frames sent: what every client takes."""
LONGEST_BLOCK: Final = 1 << 15
"""Bytes of a header block, all its frames together, and of any other frame that has to be collected."""
MOST_CONTINUATIONS: Final = 8
"""Frames that may continue one header block."""
_LONGEST_SETTINGS: Final = 64 * 6

LARGEST_STREAM: Final = (1 << 31) - 1
"""The largest number that a stream can have (5.1.1)."""
_HEADER: Final = struct.Struct(">HBBBL")
_WORD: Final = struct.Struct(">L")
_LENGTHS: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_OF_THE_CONNECTION: Final = frozenset({SETTINGS, PING, GOAWAY})
_OF_A_STREAM: Final = frozenset({DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION})


class Violation(HeadgateError):
    """What a client sent ends its connection: the code that GOAWAY tells, and a clause. Never leaves the proxy."""

    def __init__(self, code: ErrorCodes, why: str) -> None:
        super().__init__(f"{code.name}: {why}")
        self.code: Final = code
        self.why: Final = why


class Frame(NamedTuple):
    """A frame, or a piece of a DATA frame."""

    type: int
    flags: int
    stream: int
    length: int
    """Bytes of the whole payload, padding included; 0 with every piece of a DATA frame but the first."""
    payload: memoryview | bytes
    """A piece of DATA without padding, valid until the buffer is written to again; else all of it."""
    is_last: bool = True
    """Whether no more of this frame's payload follows."""


class Scanner:
    """Finds the frames of a client in what it sends, however that is split; raises `Violation` where there are none."""

    __slots__ = (
        "_block", "_block_bytes", "_block_frames", "_body", "_flags", "_header", "_length", "_pads", "_preface",
        "_rest", "_skipped", "_stream", "_type", "_wanted", "count", "is_settled",
    )  # fmt: skip

    def __init__(self) -> None:
        self._preface = PREFACE
        self._header = bytearray()  # of a frame, as long as it is not whole
        self._body = bytearray()  # of a frame that is given whole
        self._wanted = 0  # bytes that the body still lacks
        self._rest = 0  # bytes of DATA that are still to come
        self._skipped = 0  # bytes to come that are nobody's
        self._pads = False  # whether the next byte tells the length of a padding
        self._type = self._flags = self._stream = self._length = 0
        self._block = self._block_bytes = self._block_frames = 0
        self.count = 0
        """Frames that have begun."""
        self.is_settled = False
        """Whether the client has begun as it must: with the preface, and then its settings (3.4)."""

    @property
    def is_amid(self) -> bool:
        """Whether something has begun that is given whole only, and is not whole: a frame, a head, the preface."""
        return bool(self._header or self._wanted or self._block) or not self.is_settled

    def scan(self, piece: memoryview) -> Iterator[Frame]:
        """Yield the frames, and the pieces of DATA, that this piece brings; to be iterated to the end, or given up."""
        position, end = 0, len(piece)
        while position < end:
            if self._rest:
                stop = min(end, position + self._rest)
                self._rest -= stop - position
                length, self._length = self._length, 0
                yield Frame(DATA, self._flags, self._stream, length, piece[position:stop], not self._rest)
                position = stop
            elif self._skipped:
                taken = min(end - position, self._skipped)
                self._skipped -= taken
                position += taken
            elif self._wanted or self._pads:
                stop = min(end, position + (self._wanted or 1))
                frame = self._collect(piece[position:stop])
                position = stop
                if frame is not None:
                    yield frame
            elif self._preface:
                position += self._expect(bytes(piece[: len(self._preface)]))
            else:
                position, fields = self._take_header(piece, position)
                frame = self._begin(*fields) if fields is not None else None
                if frame is not None:
                    yield frame

    def _expect(self, piece: bytes) -> int:
        if not self._preface.startswith(piece):
            raise Violation(ErrorCodes.PROTOCOL_ERROR, "this is not the preface of a client that speaks HTTP/2")
        self._preface = self._preface[len(piece) :]
        return len(piece)

    def _take_header(self, piece: memoryview, position: int) -> tuple[int, tuple[int, int, int, int, int] | None]:
        """Read a frame's header, and say where it ends; None as long as it is not whole."""
        begun = self._header
        stop = position + HEADER_BYTES - len(begun)
        if not begun and stop <= len(piece):
            return stop, _HEADER.unpack_from(piece, position)
        begun += piece[position:stop]
        if len(begun) < HEADER_BYTES:
            return len(piece), None
        fields = _HEADER.unpack(begun)
        self._header = bytearray()
        return stop, fields

    def _begin(self, high: int, low: int, kind: int, flags: int, stream: int) -> Frame | None:
        """Begin a frame; returns it where there is nothing more to it."""
        length = high << 8 | low
        stream &= LARGEST_STREAM
        self._check(kind, flags, stream, length)
        self.count += 1
        self._type, self._flags, self._stream, self._length = kind, flags, stream, length
        if kind == DATA:
            if flags & PADDED:
                self._pads = True
            elif length:
                self._rest = length
            else:
                return Frame(DATA, flags, stream, 0, b"")
            return None
        if kind > CONTINUATION:
            self._skipped = length
            return Frame(kind, flags, stream, length, b"")
        self._wanted = length
        return None if length else Frame(kind, flags, stream, 0, b"")

    def _collect(self, piece: memoryview) -> Frame | None:
        """Take more of a frame that is given whole, or the one byte that tells how long a padding is."""
        if self._pads:
            self._pads = False
            self._skipped = piece[0]
            self._rest = self._length - 1 - self._skipped
            if self._rest < 0:  # 6.1
                raise Violation(ErrorCodes.PROTOCOL_ERROR, "the padding is longer than the frame")
            return None if self._rest else Frame(DATA, self._flags, self._stream, self._length, b"")
        self._wanted -= len(piece)
        if self._wanted:
            self._body += piece
            return None
        payload = bytes(self._body) + piece if self._body else bytes(piece)
        self._body.clear()
        return Frame(self._type, self._flags, self._stream, len(payload), payload)

    def _check(self, kind: int, flags: int, stream: int, length: int) -> None:
        """Refuse a frame by its header alone."""
        if not self.is_settled:
            if kind != SETTINGS or flags & ACK:
                raise Violation(ErrorCodes.PROTOCOL_ERROR, "the first frame is not the client's SETTINGS")
            self.is_settled = True
        if self._block or kind in {HEADERS, CONTINUATION}:
            self._check_block(kind, flags, stream, length)
        if length > LONGEST_DATA:
            raise Violation(ErrorCodes.FRAME_SIZE_ERROR, f"a frame of {length} bytes; the most are {LONGEST_DATA}")
        if _LENGTHS.get(kind, length) != length or (kind == SETTINGS and (length % 6 or (flags & ACK and length))):
            raise Violation(ErrorCodes.FRAME_SIZE_ERROR, f"{length} bytes is no length for a frame of type {kind}")
        if (stream and kind in _OF_THE_CONNECTION) or (not stream and kind in _OF_A_STREAM):
            raise Violation(ErrorCodes.PROTOCOL_ERROR, f"a frame of type {kind} on stream {stream}")
        if kind == DATA:
            if flags & PADDED and not length:
                raise Violation(ErrorCodes.FRAME_SIZE_ERROR, "a padded frame without a byte")
        elif kind <= CONTINUATION and length > (_LONGEST_SETTINGS if kind == SETTINGS else LONGEST_BLOCK):
            raise Violation(ErrorCodes.ENHANCE_YOUR_CALM, f"{length} bytes of a frame of type {kind}")

    def _check_block(self, kind: int, flags: int, stream: int, length: int) -> None:
        """Hold a frame against the header block that is open, or is opened by it (4.3)."""
        if self._block:
            if kind != CONTINUATION or stream != self._block:
                raise Violation(ErrorCodes.PROTOCOL_ERROR, f"a frame of type {kind} amid a header block")
            self._block_frames += 1
            self._block_bytes += length
        elif kind == CONTINUATION:
            raise Violation(ErrorCodes.PROTOCOL_ERROR, "CONTINUATION of nothing")
        else:
            self._block_frames, self._block_bytes = 0, length
        if self._block_bytes > LONGEST_BLOCK or self._block_frames > MOST_CONTINUATIONS:
            raise Violation(ErrorCodes.ENHANCE_YOUR_CALM, "a header block that is too long")
        self._block = 0 if flags & END_HEADERS else stream


class DataBuffer:
    """Room in which DATA frames come to be: payloads are read into its slots, and then their headers put between."""

    __slots__ = ("_memory", "_slots")

    def __init__(self, frames: int = 16) -> None:
        self._memory = memoryview(bytearray(frames * (HEADER_BYTES + LONGEST_PAYLOAD)))
        starts = range(HEADER_BYTES, len(self._memory), HEADER_BYTES + LONGEST_PAYLOAD)
        self._slots = [self._memory[start : start + LONGEST_PAYLOAD] for start in starts]

    def slots(self, most: int) -> list[memoryview]:
        """Give the places for the next `most` bytes of payload, which are at least one, or for as many as there are."""
        whole, rest = divmod(most, LONGEST_PAYLOAD)
        chosen = self._slots[:whole]
        if rest and whole < len(self._slots):
            chosen.append(self._slots[whole][:rest])
        return chosen

    def framed(self, count: int, stream: int) -> memoryview:
        """Give the frames that carry the `count` bytes read into the slots."""
        memory, position, rest = self._memory, 0, count
        while rest:
            length = min(rest, LONGEST_PAYLOAD)
            _HEADER.pack_into(memory, position, length >> 8, length & 0xFF, DATA, 0, stream)
            position += HEADER_BYTES + length
            rest -= length
        return memory[:position]


def header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Write the header of a frame."""
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def window_update(stream: int, increment: int) -> bytes:
    """Write a WINDOW_UPDATE frame; stream 0 is the connection."""
    return header(4, WINDOW_UPDATE, 0, stream) + _WORD.pack(increment)


def rst_stream(stream: int, code: ErrorCodes) -> bytes:
    """Write a RST_STREAM frame."""
    return header(4, RST_STREAM, 0, stream) + _WORD.pack(code)


def goaway(last: int, code: ErrorCodes, why: str = "") -> bytes:
    """Write a GOAWAY frame: streams up to `last` are, or may be, served."""
    told = why.encode()
    return header(8 + len(told), GOAWAY, 0, 0) + _WORD.pack(last) + _WORD.pack(code) + told


def ping(opaque: bytes) -> bytes:
    """Write a PING frame of eight bytes."""
    return header(8, PING, 0, 0) + opaque


def settings(values: dict[int, int]) -> bytes:
    """Write a SETTINGS frame."""
    return header(6 * len(values), SETTINGS, 0, 0) + b"".join(struct.pack(">HL", *pair) for pair in values.items())
