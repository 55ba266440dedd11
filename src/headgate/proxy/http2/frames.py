"""HTTP/2 frames (RFC 9113, section 4): parsing and writing.

Nothing is collected that need not be. The payload of DATA is returned as it arrives, in slices of the buffer that it
was read into, without padding, and consecutive frames of one stream together: tunnels bring many of them in one read.
Frames of unknown types are skipped. Every other frame is small, or an error, and returned whole. A header block is
returned frame by frame, and nothing can come in between.
"""

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headgate.errors import HeadgateError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (3.4)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
PRIORITY_FLAG: Final = 0x20

HEADER_SIZE: Final = 9
"""Bytes of a frame before its payload (4.1)."""
MAX_DATA_SIZE: Final = 1 << 18
"""Payload of the largest frame accepted, announced as SETTINGS_MAX_FRAME_SIZE."""
MAX_PAYLOAD_SIZE: Final = (1 << 14) - HEADER_SIZE
"""Payload of the frames sent: each fits in one TLS record, and every client accepts this size."""
MAX_HEADER_BLOCK_SIZE: Final = 1 << 15
"""Bytes of a header block, all its frames together, and of any other frame that has to be collected."""
MAX_CONTINUATIONS: Final = 8
"""CONTINUATION frames of one header block."""
_MAX_SETTINGS_SIZE: Final = 64 * 6

MAX_STREAM_ID: Final = (1 << 31) - 1
"""The largest stream identifier (5.1.1)."""
_HEADER: Final = struct.Struct(">HBBBL")
_WORD: Final = struct.Struct(">L")
_FIXED_SIZES: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_CONNECTION_FRAMES: Final = frozenset({SETTINGS, PING, GOAWAY})
_STREAM_FRAMES: Final = frozenset({DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION})


class ErrorCode(enum.IntEnum):
    """Error codes of RST_STREAM and GOAWAY (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class Http2Error(HeadgateError):
    """A connection error: the code and the clause for GOAWAY. Never leaves the proxy."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code: Final = code
        self.detail: Final = detail


class Frame(NamedTuple):
    """A frame that is not DATA."""

    type: int
    flags: int
    stream: int
    payload: bytes
    """All of it; empty if the type is unknown."""


class DataReceived(NamedTuple):
    """DATA of one stream: consecutive frames, slices of them, padding alone, or the end alone."""

    stream_id: int
    pieces: Sequence[memoryview]
    """The payload without padding; valid until the buffer that it was received in is used again."""
    length: int
    """Bytes of the payload of all frames that begin here, with padding, for flow control."""
    is_last: bool
    """Whether the client has ended its direction."""


class FrameParser:
    """Parses the frames in what a client sends, however that is split; raises `Http2Error` for invalid ones."""

    __slots__ = (
        "_block",
        "_block_frames",
        "_block_size",
        "_body",
        "_body_left",
        "_data_left",
        "_expects_pad_size",
        "_flags",
        "_frames",
        "_header",
        "_length",
        "_preface",
        "_skip_left",
        "_stream",
        "_type",
        "has_settings",
    )  # fmt: skip

    def __init__(self) -> None:
        self._preface = PREFACE
        self._header = bytearray()  # incomplete, of the next frame
        self._body = bytearray()  # of a frame that is returned whole
        self._body_left = 0  # bytes missing from the body
        self._data_left = 0  # payload of DATA that is still to come
        self._skip_left = 0  # bytes to come that are ignored
        self._expects_pad_size = False  # whether the next byte is a Pad Length
        self._type = self._flags = self._stream = self._length = 0
        self._block = self._block_size = self._block_frames = 0
        self._frames = 0  # that may have been incomplete
        self.has_settings = False
        """Whether preface and SETTINGS have arrived, which come first (3.4)."""

    @property
    def incomplete(self) -> int:
        """The number of the incomplete frame, header block or preface, from 1; 0 if there is none."""
        if self._header or self._body_left or self._block or not self.has_settings:
            return 1 + self._frames + bool(self._header)
        return 0

    def parse(self, piece: memoryview) -> Iterator[Frame | DataReceived]:
        """Yield the frames in these bytes. Iterate to the end, or abandon the connection."""
        position, end = 0, len(piece)
        while position < end:
            if self._data_left:
                position, data = self._take_data(piece, position)
                yield data
            elif self._skip_left:
                taken = min(end - position, self._skip_left)
                self._skip_left -= taken
                position += taken
            elif self._body_left or self._expects_pad_size:
                stop = min(end, position + (self._body_left or 1))
                frame = self._collect(piece[position:stop])
                position = stop
                if frame is not None:
                    yield frame
            elif self._preface:
                position += self._match_preface(bytes(piece[: len(self._preface)]))
            else:
                position, fields = self._take_header(piece, position)
                frame = self._begin(*fields) if fields is not None else None
                if frame is not None:
                    yield frame

    def _take_data(self, piece: memoryview, position: int) -> tuple[int, DataReceived]:
        """Return where the DATA of one stream ends that begins at `position`, and the DATA."""
        stream, flags, left, end = self._stream, self._flags, self._data_left, len(piece)
        length, self._length = self._length, 0
        slices = []
        while True:
            stop = min(end, position + left)
            slices.append(piece[position:stop])
            left -= stop - position
            position = stop
            if left or flags or position + HEADER_SIZE >= end:
                break
            high, low, kind, flags, following = _HEADER.unpack_from(piece, position)
            size = high << 8 | low
            if kind != DATA or following != stream or flags & ~END_STREAM or not 0 < size <= MAX_DATA_SIZE:
                break  # not more of the same: it is checked like every other header
            self._flags = flags
            length += size
            left = size
            position += HEADER_SIZE
        self._data_left = left
        return position, DataReceived(stream, slices, length, not left and bool(self._flags & END_STREAM))

    def _match_preface(self, piece: bytes) -> int:
        if not self._preface.startswith(piece):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the client preface is invalid")
        self._preface = self._preface[len(piece) :]
        return len(piece)

    def _take_header(self, piece: memoryview, position: int) -> tuple[int, tuple[int, int, int, int, int] | None]:
        """Return where a frame's header ends, and its fields; None while it is incomplete."""
        begun = self._header
        stop = position + HEADER_SIZE - len(begun)
        if not begun and stop <= len(piece):
            return stop, _HEADER.unpack_from(piece, position)
        begun += piece[position:stop]
        if len(begun) < HEADER_SIZE:
            return len(piece), None
        fields = _HEADER.unpack(begun)
        self._header = bytearray()
        return stop, fields

    def _begin(self, high: int, low: int, kind: int, flags: int, stream: int) -> Frame | DataReceived | None:
        """Begin a frame; returns it if its payload is empty."""
        length = high << 8 | low
        stream &= MAX_STREAM_ID
        self._check(kind, flags, stream, length)
        self._frames += 1
        self._type, self._flags, self._stream, self._length = kind, flags, stream, length
        if kind == DATA:
            if flags & PADDED:
                self._expects_pad_size = True
            elif length:
                self._data_left = length
            else:
                return DataReceived(stream, (), 0, bool(flags & END_STREAM))
            return None
        if kind > CONTINUATION:
            self._skip_left = length
            return Frame(kind, flags, stream, b"")
        self._body_left = length
        return None if length else Frame(kind, flags, stream, b"")

    def _collect(self, piece: memoryview) -> Frame | DataReceived | None:
        """Collect more of a frame that is returned whole, or the one byte of Pad Length."""
        if self._expects_pad_size:
            self._expects_pad_size = False
            self._skip_left = piece[0]
            self._data_left = self._length - 1 - self._skip_left
            if self._data_left < 0:  # 6.1
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the padding is larger than the frame")
            if self._data_left:
                return None
            return DataReceived(self._stream, (), self._length, bool(self._flags & END_STREAM))
        self._body_left -= len(piece)
        if self._body_left:
            self._body += piece
            return None
        payload = bytes(self._body) + piece if self._body else bytes(piece)
        self._body.clear()
        return Frame(self._type, self._flags, self._stream, payload)

    def _check(self, kind: int, flags: int, stream: int, length: int) -> None:
        """Reject a frame by its header alone."""
        if not self.has_settings:
            if kind != SETTINGS or flags & ACK:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "the first frame is not the client's SETTINGS")
            self.has_settings = True
        if self._block or kind in {HEADERS, CONTINUATION}:
            self._check_block(kind, flags, stream, length)
        if length > MAX_DATA_SIZE:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes; the maximum is {MAX_DATA_SIZE}")
        if _FIXED_SIZES.get(kind, length) != length or (kind == SETTINGS and (length % 6 or (flags & ACK and length))):
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"invalid length {length} of a frame of type {kind}")
        if (stream and kind in _CONNECTION_FRAMES) or (not stream and kind in _STREAM_FRAMES):
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} on stream {stream}")
        if kind == DATA:
            if flags & PADDED and not length:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without Pad Length")
        elif kind <= CONTINUATION and length > (_MAX_SETTINGS_SIZE if kind == SETTINGS else MAX_HEADER_BLOCK_SIZE):
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"{length} bytes of a frame of type {kind}")

    def _check_block(self, kind: int, flags: int, stream: int, length: int) -> None:
        """Reject a frame that does not continue the open header block, and blocks that are too large (4.3)."""
        if self._block:
            if kind != CONTINUATION or stream != self._block:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} inside a header block")
            self._block_frames += 1
            self._block_size += length
        elif kind == CONTINUATION:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block")
        else:
            self._block_frames, self._block_size = 0, length
        if self._block_size > MAX_HEADER_BLOCK_SIZE or self._block_frames > MAX_CONTINUATIONS:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "the header block is too large")
        self._block = 0 if flags & END_HEADERS else stream


def block_fragment(frame: Frame) -> bytes:
    """Return the field block fragment of a HEADERS frame (6.2), without padding and priority."""
    start, end = 0, len(frame.payload)
    if frame.flags & PADDED:
        if not end:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without Pad Length")
        start, end = 1, end - frame.payload[0]
    if frame.flags & PRIORITY_FLAG:
        start += 5
    if start > end:
        code = ErrorCode.FRAME_SIZE_ERROR if start > len(frame.payload) else ErrorCode.PROTOCOL_ERROR
        raise Http2Error(code, "a HEADERS frame is shorter than its padding and priority")
    return frame.payload[start:end]


def header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the header of a frame."""
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def write_data_header(memory: memoryview, position: int, length: int, stream: int) -> None:
    """Write the header of a DATA frame in place."""
    _HEADER.pack_into(memory, position, length >> 8, length & 0xFF, DATA, 0, stream)


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 is the connection."""
    return header(4, WINDOW_UPDATE, 0, stream) + _WORD.pack(increment)


def rst_stream(stream: int, code: ErrorCode) -> bytes:
    """Return a RST_STREAM frame."""
    return header(4, RST_STREAM, 0, stream) + _WORD.pack(code)


def goaway(last: int, code: ErrorCode, detail: str = "") -> bytes:
    """Return a GOAWAY frame: streams up to `last` are, or may be, served."""
    debug_data = detail.encode()
    return header(8 + len(debug_data), GOAWAY, 0, 0) + _WORD.pack(last) + _WORD.pack(code) + debug_data


def ping(data: bytes) -> bytes:
    """Return a PING frame; `data` has eight bytes."""
    return header(8, PING, 0, 0) + data


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return header(6 * len(values), SETTINGS, 0, 0) + b"".join(struct.pack(">HL", *pair) for pair in values.items())
