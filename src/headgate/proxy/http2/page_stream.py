"""A stream whose response is a page, sent as the client's windows allow, from the one copy there is."""

from typing import Final

from headgate.proxy.connect import CloseReason
from headgate.proxy.http2.frames import DATA, MAX_PAYLOAD_SIZE, ErrorCode, header
from headgate.proxy.http2.stream import StreamSink
from headgate.proxy.net.loop_state import LoopState


class PageStream:
    """Sends `body` to a client that has ended its direction; closes after `idle` seconds without progress."""

    __slots__ = ("_idle", "_rest", "_sink", "_state", "closed", "deadline", "stream_id")

    is_tunnel: Final = False

    def __init__(self, sink: StreamSink, stream_id: int, body: bytes, *, state: LoopState, idle: float) -> None:
        self._sink = sink
        self._state = state
        self._idle = idle
        self._rest = memoryview(body)
        self.stream_id = stream_id
        self.closed = False
        self.deadline = state.now + idle

    def resume(self) -> None:
        """Send what there is room for; after the last of it the stream is closed."""
        while self._rest and (room := min(self._sink.capacity(self), MAX_PAYLOAD_SIZE)) > 0:
            piece, self._rest = self._rest[:room], self._rest[room:]
            frame = header(len(piece), DATA, 0, self.stream_id) + piece
            self._sink.send_data(self.stream_id, memoryview(frame), len(piece))
            self.deadline = self._state.now + self._idle
        if not self._rest and not self.closed:
            self._sink.end_stream(self.stream_id)
            self.close("ended")

    send_more = resume

    def expire(self, now: float) -> None:  # noqa: ARG002 - as every `ConnectionStream`
        """Close: the client does not read."""
        self.close("idle")

    def close(self, reason: CloseReason, code: ErrorCode | None = None) -> None:  # noqa: ARG002 - as every `ConnectionStream`
        """Close the stream."""
        if not self.closed:
            self.closed = True
            self._sink.stream_closed(self, ErrorCode.CANCEL if code is None else code)
