"""Limits of what one connection may ask for in vain, in HTTP/1.1 as in HTTP/2, and of the frames and windows of HTTP/2.

Abuse is not an error (RFC 9113, section 10.5). Each request or frame costs the client next to nothing and the proxy
something: requests that are refused, streams reset before they are answered (CVE-2023-44487), endless SETTINGS and
PING, frames that carry nothing. Each kind has a leaky bucket per connection; a connection that overflows one is closed.

`FrameGuard` sees the header of each frame before the library h2 does. It ends connections that h2 would tolerate, and
removes frames that h2 need not see: those without a purpose here, and those that h2 takes for the end of the
connection.

Receive windows (RFC 9113, section 5.2) reserve memory: they start at 64 KiB and double up to 512 KiB per stream only
while data is forwarded immediately, so that an idle tunnel reserves little. This file knows no socket and no clock.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from h2.errors import ErrorCodes

from headgate.errors import HeadgateError

AbuseKind: TypeAlias = Literal[
    "failed requests", "resets", "settings", "pings", "idle frames", "empty DATA", "late DATA", "WINDOW_UPDATE",
    "head bytes",
]  # fmt: skip


class AbuseLimit(NamedTuple):
    """How many at once, and how many per second in the long run."""

    burst: float
    per_second: float


ABUSE_LIMITS: Final[Mapping[AbuseKind, AbuseLimit]] = {
    # Requests that are refused, whatever the reason; heads on closed streams, and errors that end a stream.
    "failed requests": AbuseLimit(100, 10),
    # Streams that the client resets before a byte has passed: the decision was made in vain.
    "resets": AbuseLimit(100, 10),
    # A client sends one or two in its life, one that tunes its windows a few more.
    "settings": AbuseLimit(50, 1),
    # Some clients measure the round trip time once per round trip while bytes flow.
    "pings": AbuseLimit(1000, 100),
    # PRIORITY, GOAWAY, frames of unknown types, resets of closed streams.
    "idle frames": AbuseLimit(1000, 100),
    "empty DATA": AbuseLimit(100, 10),
    # Bytes that were in flight when a stream was reset, and a cost for each frame, since h2 answers it.
    "late DATA": AbuseLimit(1 << 22, 1 << 20),
    # Beyond those that DATA is answered with.
    "WINDOW_UPDATE": AbuseLimit(1000, 100),
    # An indexed head has 50 bytes, one with a token 500; decoding Huffman code takes 0.3 µs a byte.
    "head bytes": AbuseLimit(1 << 20, 1 << 18),
}


class AbuseLimiter:
    """The leaky buckets of one connection."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[AbuseKind, tuple[float, float]] = {}

    def add(self, kind: AbuseKind, amount: float = 1, *, now: float) -> bool:
        """Count one more, or `amount` more (less, if negative); returns whether that exceeds the limit."""
        limit = ABUSE_LIMITS[kind]
        level, before = self._levels.get(kind, (0.0, now))
        level = max(0.0, max(0.0, level - (now - before) * limit.per_second) + amount)
        self._levels[kind] = (level, now)
        return level > limit.burst


INITIAL_WINDOW: Final = 65_535
"""Bytes that both sides may send on a stream, or a connection, before any frame changes it (6.9.2)."""
MAX_STREAM_WINDOW: Final = 1 << 19
"""The largest receive window of a stream."""
MAX_CONNECTION_WINDOW: Final = 1 << 20
"""The largest receive window of a connection."""
MAX_HEADER_BLOCK_SIZE: Final = 1 << 15
"""Bytes of a header block, all its frames together."""
MAX_CONTINUATIONS: Final = 8
"""CONTINUATION frames of one header block."""
MAX_SETTINGS_SIZE: Final = 64 * 6
"""Bytes of a SETTINGS frame."""
MAX_FRAME_SIZE: Final = 1 << 14
"""Payload of the largest frame accepted; h2 keeps an incomplete frame in memory."""

_PREFACE_SIZE: Final = 24
FRAME_HEADER: Final = struct.Struct(">HBBBL")
"""Length (high and low), type, flags and stream of a frame (4.1)."""
_MAX_STREAM_ID: Final = (1 << 31) - 1
_DATA, _HEADERS, _, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = range(10)
_ACK: Final = 0x01
_END_HEADERS: Final = 0x04


class Http2Error(HeadgateError):
    """A connection error: the code and the clause for GOAWAY. Never leaves the proxy."""

    def __init__(self, code: ErrorCodes, detail: str) -> None:
        super().__init__(f"{code.name}: {detail}")
        self.code: Final = code
        self.detail: Final = detail


class ReceiveWindow:
    """What the client may send, on a stream or a connection; `limit` grows to `maximum`. h2 enforces it."""

    __slots__ = ("_maximum", "_used", "limit")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.limit = INITIAL_WINDOW
        """Bytes that the client may have sent since the last update."""
        self._used = 0

    def receive(self, count: int) -> None:
        """Count received bytes."""
        self._used += count

    def update(self, held: int, *, growth: int = 0) -> int:
        """Return the increment to send, with `held` bytes not forwarded yet; 0 while more than half is open.

        The window may become larger by up to `growth` bytes.
        """
        forwarded = self._used - held
        if forwarded * 2 < self.limit:
            return 0
        grown = max(0, min(growth, self.limit, self._maximum - self.limit))
        self.limit += grown
        self._used = held
        return forwarded + grown


_LATE_FRAME_COST: Final = 1000
_COUNTED: Final[Mapping[int, AbuseKind]] = {_WINDOW_UPDATE: "WINDOW_UPDATE", _PING: "pings"}


class FrameGuard:
    """Checks and counts the frames of one client. `is_closed` says whether a stream was opened and has ended.

    Raises `Http2Error` for abuse, and for what h2 would accept although RFC 9113 does not.
    """

    __slots__ = (
        "_block", "_block_frames", "_block_size", "_frames", "_header", "_is_closed", "_is_kept", "_is_timed", "_left",
        "_now", "abuse", "client_leaves", "has_settings", "head_sizes",
    )  # fmt: skip

    def __init__(self, is_closed: Callable[[int], bool]) -> None:
        self._is_closed = is_closed
        self._header = b""  # incomplete
        self._left = _PREFACE_SIZE  # bytes of the preface, or of a frame's payload, that are to come
        self._is_kept = True  # whether h2 gets them
        self._is_timed = True  # whether the time for them is limited
        self._frames = 0
        self._block = 0  # the stream whose header block is incomplete
        self._block_size = self._block_frames = 0
        self._now = 0.0
        self.abuse = AbuseLimiter()
        """Also counts the requests that are refused."""
        self.has_settings = False
        """Whether preface and SETTINGS have arrived, which come first (3.4)."""
        self.client_leaves = False
        """Whether the client has sent GOAWAY: it opens no more streams."""
        self.head_sizes: dict[int, int] = {}
        """Bytes of the frames of complete heads, by stream; its reader clears it."""

    @property
    def incomplete(self) -> int:
        """A number for the frame, head or preface that is incomplete, different for each; 0 if there is none.

        DATA does not count: a tunnel has its own timeout.
        """
        if self._header or (self._left and self._is_timed) or self._block or not self.has_settings:
            return 1 + self._frames + bool(self._header)
        return 0

    def filter(self, data: memoryview, *, now: float) -> Iterator[memoryview | bytes]:
        """Yield what h2 is to receive of these bytes. Iterate to the end, or abandon the connection."""
        self._now = now
        position, start, end = 0, 0, len(data)  # of what is kept, from `start` on was not yielded yet
        while position < end:
            if self._left:
                taken = min(self._left, end - position)
                self._left -= taken
                position += taken
                if not self._is_kept:
                    start = position
                continue
            missing = FRAME_HEADER.size - len(self._header)
            header = self._header + bytes(data[position : position + missing])
            is_split, self._header = bool(self._header), b""
            if len(header) < FRAME_HEADER.size:
                self._header = header
                end = position
                break
            self._begin(header)
            if is_split or not self._is_kept:
                yield data[start:position]
                if self._is_kept:
                    yield header
                start = position + missing
            position += missing
        yield data[start:end]

    def count(self, kind: AbuseKind, amount: float = 1) -> None:
        """Count one more, or `amount` more; raises `Http2Error` above the limit."""
        if self.abuse.add(kind, amount, now=self._now):
            raise Http2Error(ErrorCodes.ENHANCE_YOUR_CALM, f"too many {kind}")

    def _begin(self, header: bytes) -> None:
        """Begin a frame: check and count it by its header."""
        high, low, kind, flags, stream = FRAME_HEADER.unpack(header)
        length, stream = high << 8 | low, stream & _MAX_STREAM_ID
        if length > MAX_FRAME_SIZE:
            detail = f"a frame of {length} bytes; the maximum is {MAX_FRAME_SIZE}"
            raise Http2Error(ErrorCodes.FRAME_SIZE_ERROR, detail)
        if not self.has_settings:
            if kind != _SETTINGS or flags & _ACK:
                raise Http2Error(ErrorCodes.PROTOCOL_ERROR, "the first frame is not the client's SETTINGS")
            self.has_settings = True
        self._frames += 1
        self._left = length
        self._is_timed = kind != _DATA
        if self._block or kind in {_HEADERS, _CONTINUATION}:
            self._check_block(kind, flags, stream, length)
        self._is_kept = self._count_frame(kind, flags, stream, length)

    def _check_block(self, kind: int, flags: int, stream: int, length: int) -> None:
        """Reject a frame that does not continue the open header block, and blocks that are too large (4.3)."""
        if self._block:
            if kind != _CONTINUATION or stream != self._block:
                raise Http2Error(ErrorCodes.PROTOCOL_ERROR, f"a frame of type {kind} inside a header block")
            self._block_frames += 1
        elif kind == _CONTINUATION:
            raise Http2Error(ErrorCodes.PROTOCOL_ERROR, "CONTINUATION without a header block")
        else:
            self._block_frames = self._block_size = 0
        self._block_size += FRAME_HEADER.size + length
        if self._block_size > MAX_HEADER_BLOCK_SIZE or self._block_frames > MAX_CONTINUATIONS:
            raise Http2Error(ErrorCodes.ENHANCE_YOUR_CALM, "the header block is too large")
        self._block = 0 if flags & _END_HEADERS else stream
        self.head_sizes[stream] = self._block_size

    def _count_frame(self, kind: int, flags: int, stream: int, length: int) -> bool:
        """Count a frame; return whether h2 is to see it."""
        if kind == _DATA:
            if self._is_closed(stream):
                self.count("late DATA", _LATE_FRAME_COST + length)
        elif kind in {_HEADERS, _CONTINUATION}:
            self.count("head bytes", FRAME_HEADER.size + length)
            if self._is_closed(stream):
                self.count("failed requests")
        elif kind == _SETTINGS:
            self.count("idle frames" if flags & _ACK else "settings")
            if length > MAX_SETTINGS_SIZE:
                raise Http2Error(ErrorCodes.ENHANCE_YOUR_CALM, f"{length} bytes of settings")
        elif kind in _COUNTED:
            self.count(_COUNTED[kind])
        elif kind != _PUSH_PROMISE and (kind != _RST_STREAM or self._is_closed(stream)):
            # Priorities (5.3.2), unknown types (5.5), resets of closed streams.
            self.count("idle frames")
            self.client_leaves |= kind == _GOAWAY
            return False
        return True
