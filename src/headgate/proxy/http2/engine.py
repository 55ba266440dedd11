"""The protocol of one HTTP/2 connection, without I/O: bytes in, events out; commands in, bytes to send out.

This file knows no socket, no tunnel and no clock. It parses frames, decodes heads, keeps the flow control windows and
the state of each stream, and answers SETTINGS and PING. An error of one stream resets that stream; an error of the
connection is an `Http2Error`, and so is abuse.

A stream is half-closed or not in each direction (RFC 9113, 5.1): `Stream.client_ended` and `Stream.ended`. It stays in
`streams` until `close_stream` is called, so that its user decides when it is over.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from hpack import Decoder, Encoder, HPACKError, OversizedHeaderListError

from headgate.proxy.http2 import frames
from headgate.proxy.http2.events import (
    Event,
    GoawayReceived,
    PingAnswered,
    RequestReceived,
    StreamReset,
    WindowIncreased,
)
from headgate.proxy.http2.frames import END_HEADERS, END_STREAM, DataReceived, ErrorCode, Frame, FrameParser, Http2Error
from headgate.proxy.http2.limits import (
    INITIAL_WINDOW,
    MAX_CONNECTION_WINDOW,
    MAX_STREAM_WINDOW,
    MAX_WINDOW,
    AbuseKind,
    AbuseLimiter,
    ReceiveWindow,
    increased,
)

MAX_STREAMS: Final = 256
"""Concurrent streams of one connection."""
MAX_REQUEST_HEAD_SIZE: Final = 1 << 14
"""Announced as SETTINGS_MAX_HEADER_LIST_SIZE. A larger head is answered, up to what ends the connection."""

# A decoded head may be larger than its block, by the fields that HPACK remembers; above this the connection ends.
_MAX_DECODED_SIZE: Final = 2 * frames.MAX_HEADER_BLOCK_SIZE
_MAX_TABLE_SIZE: Final = 4096
"""Bytes of a header table, which is also the size before any SETTINGS (6.5.2)."""
_STATUS_200: Final = b"\x88"
"""The header block of a response with status 200 and no fields: an index of the static table (RFC 7541, appendix A)."""
_MAX_RESET_STREAMS: Final = 128
_WINDOW_UPDATES_PER_FRAME: Final = 4
"""WINDOW_UPDATE frames that a client may answer one frame of DATA with."""

_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_CONCURRENT, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE, _MAX_LIST_SIZE = range(1, 7)
_ENABLE_CONNECT_PROTOCOL: Final = 8
_OUR_SETTINGS: Final = frames.settings(
    {
        _ENABLE_PUSH: 0,
        _MAX_CONCURRENT: MAX_STREAMS,
        _MAX_FRAME_SIZE: frames.MAX_DATA_SIZE,
        _MAX_LIST_SIZE: MAX_REQUEST_HEAD_SIZE,
    }
)
_SETTING_RANGES: Final = {
    _ENABLE_PUSH: (0, 1, ErrorCode.PROTOCOL_ERROR),
    _INITIAL_WINDOW_SIZE: (0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    _MAX_FRAME_SIZE: (1 << 14, (1 << 24) - 1, ErrorCode.PROTOCOL_ERROR),
    _ENABLE_CONNECT_PROTOCOL: (0, 1, ErrorCode.PROTOCOL_ERROR),
}


class Stream:
    """One stream, as the protocol has it."""

    __slots__ = ("client_ended", "ended", "is_answered", "receive_window", "send_window", "was_used")

    def __init__(self, send_window: int) -> None:
        self.send_window = send_window
        """Bytes that may be sent; negative after the client has reduced its initial window (6.9.2)."""
        self.receive_window = ReceiveWindow(MAX_STREAM_WINDOW)
        self.client_ended = False
        """Whether the client has ended its direction."""
        self.ended = False
        """Whether our direction has ended."""
        self.is_answered = False
        self.was_used = False
        """Whether DATA was received or sent."""


class Http2Engine:
    """One server connection. Raises `Http2Error` from `receive`."""

    __slots__ = (
        "_abuse", "_block", "_block_flags", "_decoder", "_encoder", "_head_size", "_initial_window", "_now", "_parser",
        "_reset_streams", "last_stream_id", "output", "receive_window", "send_window", "streams",
    )  # fmt: skip

    def __init__(self) -> None:
        self.output = bytearray(_OUR_SETTINGS)
        """Frames to be sent, in order; the sender clears it. DATA is framed and sent apart."""
        self.streams: dict[int, Stream] = {}
        self.last_stream_id = 0
        """The latest stream that the client has opened."""
        self.send_window = INITIAL_WINDOW
        """Bytes that may be sent in all streams together."""
        self.receive_window = ReceiveWindow(MAX_CONNECTION_WINDOW)
        self._initial_window = INITIAL_WINDOW
        self._parser = FrameParser()
        self._abuse = AbuseLimiter()
        self._decoder = Decoder(max_header_list_size=_MAX_DECODED_SIZE)
        self._decoder.max_allowed_table_size = _MAX_TABLE_SIZE
        self._encoder: Encoder | None = None  # created when it is needed: most connections have one response, 200
        self._block = b""  # of the header block that is incomplete
        self._block_flags = 0
        self._head_size = 0
        self._reset_streams: dict[int, None] = {}  # the latest: frames that were in flight may still arrive
        self._now = 0.0

    @property
    def incomplete_input(self) -> int:
        """A number for the frame, head or preface that is incomplete, different for each; 0 if there is none."""
        return self._parser.incomplete

    # Input.

    def receive(self, data: memoryview, *, now: float) -> Iterator[Event]:
        """Yield what received bytes mean. Iterate to the end, or abandon the connection. Raises `Http2Error`."""
        self._now = now
        for frame in self._parser.parse(data):
            event = self._data_received(frame) if isinstance(frame, DataReceived) else self._other_received(frame)
            if event is not None:
                yield event

    def _other_received(self, frame: Frame) -> Event | None:
        match frame.type:
            case frames.HEADERS | frames.CONTINUATION:
                return self._headers_received(frame)
            case frames.WINDOW_UPDATE:
                return self._window_update_received(frame)
            case frames.RST_STREAM:
                return self._reset_received(frame)
            case frames.SETTINGS:
                return self._settings_received(frame)
            case frames.PING:
                return self._ping_received(frame)
            case frames.GOAWAY:
                return self._goaway_received(frame)
            case frames.PUSH_PROMISE:  # 8.4
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")
            case _:  # priorities (5.3.2) and unknown types (5.5)
                self._count("idle frames")
                return None

    def _data_received(self, data: DataReceived) -> Event | None:
        if not self.receive_window.receive(data.length):
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window allows")
        stream = self.streams.get(data.stream_id)
        if stream is None or stream.client_ended:
            return self._late_data_received(data, stream)
        if not stream.receive_window.receive(data.length):
            return self._fail_stream(data.stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        if data.pieces:
            stream.was_used = True
        elif not data.is_last:
            self._count("empty DATA")
        stream.client_ended = data.is_last
        return data

    def _late_data_received(self, data: DataReceived, stream: Stream | None) -> Event | None:
        if stream is not None:  # 5.1, half-closed (remote)
            return self._fail_stream(data.stream_id, ErrorCode.STREAM_CLOSED)
        self._check_opened(data.stream_id, "DATA")
        self._count("late DATA", max(1, len(data.pieces)))
        return None

    def _headers_received(self, frame: Frame) -> Event | None:
        size = frames.HEADER_SIZE + len(frame.payload)
        self._count("head bytes", size)
        self._head_size += size
        if frame.type == frames.HEADERS:
            self._block = frames.block_fragment(frame)
            self._block_flags = frame.flags
        else:
            self._block += frame.payload
        if not frame.flags & END_HEADERS:
            return None
        fields = self._decode(self._block)
        size, self._head_size, self._block = self._head_size, 0, b""
        return self._head_received(frame.stream, fields, size)

    def _decode(self, block: bytes) -> Sequence[tuple[bytes, bytes]]:
        try:
            return list(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "the decoded head is too large") from None
        except (HPACKError, IndexError, TypeError, UnicodeDecodeError) as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, "a header block cannot be decoded") from error  # 4.3

    def _head_received(self, stream_id: int, fields: Sequence[tuple[bytes, bytes]], size: int) -> Event | None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            # 5.1, half-closed (remote); 8.5: only DATA, RST_STREAM and WINDOW_UPDATE on a tunnel, so no trailers
            code = ErrorCode.STREAM_CLOSED if stream.client_ended else ErrorCode.PROTOCOL_ERROR
            return self._fail_stream(stream_id, code)
        if stream_id in self._reset_streams:
            self._count("mistakes")
            return None
        if stream_id % 2 == 0:  # 5.1.1
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        if stream_id <= self.last_stream_id:
            raise Http2Error(ErrorCode.STREAM_CLOSED, f"a head on stream {stream_id}, which is closed")
        self.last_stream_id = stream_id
        if len(self.streams) >= MAX_STREAMS:  # 5.1.2; the client may try again
            self._reset(stream_id, ErrorCode.REFUSED_STREAM)
            self._count("mistakes")
            return None
        stream = self.streams[stream_id] = Stream(self._initial_window)
        stream.client_ended = bool(self._block_flags & END_STREAM)
        return RequestReceived(stream_id, fields, size, stream.client_ended)

    def _reset_received(self, frame: Frame) -> Event | None:
        self._check_opened(frame.stream, "RST_STREAM")
        stream = self.streams.get(frame.stream)
        if stream is None:
            self._count("idle frames")
            return None
        if not (stream.is_answered and stream.was_used):
            self._count("resets")
        self._forget_reset(frame.stream)
        return StreamReset(frame.stream)

    def _settings_received(self, frame: Frame) -> Event | None:
        if frame.flags & frames.ACK:
            self._count("idle frames")
            return None
        self._count("settings")
        self.output += frames.header(0, frames.SETTINGS, frames.ACK, 0)
        change = 0
        for start in range(0, len(frame.payload), 6):
            setting = int.from_bytes(frame.payload[start : start + 2])
            value = int.from_bytes(frame.payload[start + 2 : start + 6])
            low, high, code = _SETTING_RANGES.get(setting, (0, value, ErrorCode.PROTOCOL_ERROR))
            if not low <= value <= high:  # 6.5.2
                raise Http2Error(code, f"setting {setting} cannot be {value}")
            if setting == _HEADER_TABLE_SIZE:
                self._change_table_size(min(value, _MAX_TABLE_SIZE))
            elif setting == _INITIAL_WINDOW_SIZE:
                change += value - self._initial_window
                self._initial_window = value
        return self._change_windows(change)

    def _change_table_size(self, size: int) -> None:
        if self._encoder is not None or size != _MAX_TABLE_SIZE:
            self._encoder = self._encoder or Encoder()
            self._encoder.header_table_size = size

    def _change_windows(self, change: int) -> Event | None:
        """Change the window of every stream (6.9.2)."""
        for stream in self.streams.values() if change else ():
            window = increased(stream.send_window, change)
            if window is None:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "settings increase a stream's window too much")
            stream.send_window = window
        return WindowIncreased(0) if change > 0 else None

    def _ping_received(self, frame: Frame) -> Event | None:
        self._count("pings")
        if frame.flags & frames.ACK:
            return PingAnswered(bytes(frame.payload))
        self.output += frames.header(8, frames.PING, frames.ACK, 0) + frame.payload
        return None

    def _goaway_received(self, frame: Frame) -> Event:
        if len(frame.payload) < 8:
            raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is too short")
        self._count("idle frames")
        return GoawayReceived()

    def _window_update_received(self, frame: Frame) -> Event | None:
        self._count("WINDOW_UPDATE")
        increment = int.from_bytes(frame.payload) & MAX_WINDOW
        code = ErrorCode.FLOW_CONTROL_ERROR if increment else ErrorCode.PROTOCOL_ERROR  # 6.9, 6.9.1
        if not frame.stream:
            window = increased(self.send_window, increment)
            if window is None or not increment:
                raise Http2Error(code, f"the connection's window cannot be increased by {increment}")
            self.send_window = window
            return None  # streams without room check `send_window`
        stream = self.streams.get(frame.stream)
        if stream is None:
            self._check_opened(frame.stream, "WINDOW_UPDATE")
            return None
        window = increased(stream.send_window, increment)
        if window is None or not increment:
            return self._fail_stream(frame.stream, code)
        stream.send_window = window
        return WindowIncreased(frame.stream)

    def _check_opened(self, stream_id: int, name: str) -> None:
        if stream_id > self.last_stream_id or not stream_id % 2:  # 5.1, idle
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"{name} on stream {stream_id}, which was never opened")

    def _fail_stream(self, stream_id: int, code: ErrorCode) -> StreamReset:
        self._reset(stream_id, code)
        self._count("mistakes")
        return StreamReset(stream_id)

    def _count(self, kind: AbuseKind, amount: float = 1) -> None:
        self._abuse.count(kind, now=self._now, amount=amount)

    # Commands.

    def count_mistake(self) -> None:
        """Count a request that is refused without a decision. Raises `Http2Error` if there are too many."""
        self._count("mistakes")

    def respond(self, stream_id: int, status: int, fields: Sequence[tuple[str, str]], *, is_last: bool) -> None:
        """Send a response head; `is_last` if no DATA follows. Does nothing on a stream that is over."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        block = self._encode(status, fields)
        flags = END_HEADERS | END_STREAM if is_last else END_HEADERS
        self.output += frames.header(len(block), frames.HEADERS, flags, stream_id) + block
        stream.is_answered = True
        stream.ended = is_last

    def _encode(self, status: int, fields: Sequence[tuple[str, str]]) -> bytes:
        if self._encoder is None and status == 200 and not fields:
            return _STATUS_200
        self._encoder = self._encoder or Encoder()
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        return bytes(self._encoder.encode([(b":status", b"%d" % status), *encoded]))

    def end_stream(self, stream_id: int) -> None:
        """End our direction of a stream."""
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.ended:
            stream.ended = True
            self.output += frames.header(0, frames.DATA, END_STREAM, stream_id)

    def close_stream(self, stream_id: int, code: ErrorCode = ErrorCode.CANCEL) -> None:
        """Forget a stream, and reset it unless both directions have ended or it was reset."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if stream.client_ended and stream.ended:
            del self.streams[stream_id]
        else:
            self._reset(stream_id, code)

    def send_capacity(self, stream_id: int) -> int:
        """Return how many bytes of DATA may be sent on a stream."""
        stream = self.streams.get(stream_id)
        return 0 if stream is None or stream.ended else min(stream.send_window, self.send_window)

    def data_sent(self, stream_id: int, count: int) -> None:
        """Count bytes of DATA that are sent."""
        stream = self.streams[stream_id]
        stream.was_used = True
        stream.send_window -= count
        self.send_window -= count
        self._abuse.refund("WINDOW_UPDATE", _WINDOW_UPDATES_PER_FRAME * -(-count // frames.MAX_PAYLOAD_SIZE))

    def update_stream_window(self, stream_id: int, held: int, *, growth: int) -> None:
        """Let the client send more on a stream, of whose bytes `held` are not forwarded yet."""
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.client_ended:
            increment = stream.receive_window.update(held, growth=growth)
            if increment:
                self.output += frames.window_update(stream_id, increment)

    def update_window(self, held: int, *, growth: int) -> int:
        """Let the client send more in all streams together; returns by how much the window has grown."""
        before = self.receive_window.limit
        increment = self.receive_window.update(held, growth=growth)
        if increment:
            self.output += frames.window_update(0, increment)
        return self.receive_window.limit - before

    def announce_shutdown(self, probe: bytes) -> None:
        """Tell the client to open no more streams; those that it opens before it reads that are served (6.8).

        `probe` comes back as `PingAnswered` after all of these.
        """
        self.output += frames.goaway(frames.MAX_STREAM_ID, ErrorCode.NO_ERROR, "the proxy shuts down")
        self.output += frames.ping(probe)

    def shut_down(self, code: ErrorCode, detail: str) -> None:
        """Tell the client that the connection ends."""
        self.output += frames.goaway(self.last_stream_id, code, detail)

    def _reset(self, stream_id: int, code: ErrorCode) -> None:
        self.output += frames.rst_stream(stream_id, code)
        self._forget_reset(stream_id)

    def _forget_reset(self, stream_id: int) -> None:
        self.streams.pop(stream_id, None)
        self._reset_streams[stream_id] = None
        if len(self._reset_streams) > _MAX_RESET_STREAMS:
            del self._reset_streams[next(iter(self._reset_streams))]
