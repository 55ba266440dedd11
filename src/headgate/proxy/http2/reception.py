"""What a client's frames come to: DATA goes to its stream, heads become requests, and windows move.

Flow control is counted here and in the streams alone, for what comes as for what goes. What is wrong with one stream
ends that stream; what is wrong with the connection is a `Violation`, and so is what is merely too much.
"""

from typing import TYPE_CHECKING, Final

from h2.errors import ErrorCodes
from h2.events import Event, PingAckReceived, RemoteSettingsChanged, RequestReceived, StreamReset, TrailersReceived

from headgate.proxy.http2 import frames
from headgate.proxy.http2.abuse_limits import Floods, Nuisance
from headgate.proxy.http2.flow_control import FIRST_WINDOW, LARGEST_WINDOW, MOST_OF_ALL, Receiving, widened
from headgate.proxy.http2.frames import ACK, END_STREAM, Frame, Scanner, Violation
from headgate.proxy.tunnel_end import MOST_WAITING

if TYPE_CHECKING:
    from headgate.proxy.http2.connection import Http2Connection
    from headgate.proxy.http2.stream import Stream

__all__ = ["Reception"]

_HELD_ASIDE: Final = 1 << 20
"""Bytes that tunnels may hold back without any loss to the others in their connection."""
_WINDOW_UPDATES: Final = 4
"""Frames WINDOW_UPDATE that a frame of DATA may be answered with."""


class Reception:
    """The receiving half of a connection."""

    __slots__ = ("_connection", "_first_window", "_floods", "_head_bytes", "_inlet", "_scanner", "_touched")

    def __init__(self, connection: "Http2Connection") -> None:
        self._connection = connection
        self._scanner = Scanner()
        self._floods = Floods()
        self._inlet = Receiving(MOST_OF_ALL)
        self._touched: set[Stream] = set()  # DATA came for them in this turn
        self._head_bytes = 0  # of the header block that is open
        self._first_window = connection.control.first_window

    @property
    def amid(self) -> int:
        """A number for what the client has begun and has to go on with, another one each time; 0 for nothing."""
        return 1 + self._scanner.count if self._scanner.is_amid else 0

    def hear(self, piece: memoryview) -> int:
        """See to what came, but for what `deliver` does; returns how much of it was DATA. Raises `Violation`."""
        amount = 0
        for frame in self._scanner.scan(piece):
            if frame.type == frames.DATA:
                amount += len(frame.payload)
                self._hear_data(frame)
            else:
                self._hear_other(frame)
            if self._connection.closing:
                break
        return amount

    def deliver(self) -> None:
        """Have the streams pass on what came for them, while the buffer is still as it was."""
        while self._touched:
            self._touched.pop().deliver()

    def credit(self) -> None:
        """Open the connection's window anew, by what has gone on, or waits where it harms nobody."""
        connection, shared = self._connection, self._connection.shared
        is_tight = connection.server.relay.waiting > MOST_WAITING // 2
        kept = max(0, connection.held - (0 if is_tight else _HELD_ASIDE))
        before = self._inlet.limit
        increment = self._inlet.increment(kept, growth=0 if is_tight or connection.held else shared.to_grant())
        if increment:
            shared.grant(self._inlet.limit - before)
            connection.outlet.said += frames.window_update(0, increment)

    def paid(self, count: int) -> None:
        """Hear that so many frames of DATA were sent: they are worth an answer."""
        self._floods.forgive("WINDOW_UPDATE", _WINDOW_UPDATES * count)

    def count(self, kind: Nuisance, amount: float = 1) -> None:
        """Count what the client does to no purpose. Raises `Violation`."""
        self._floods.count(kind, now=self._connection.server.relay.now, amount=amount)

    def close(self) -> None:
        """Give back what was granted."""
        self._touched.clear()
        self._connection.shared.grant(FIRST_WINDOW - self._inlet.limit)

    # Frame by frame.

    def _hear_other(self, frame: Frame) -> None:
        match frame.type:
            case frames.HEADERS | frames.CONTINUATION:
                self._hear_head(frame)
            case frames.RST_STREAM:
                self._hear_reset(frame)
            case frames.WINDOW_UPDATE:
                self._hear_window_update(frame)
            case frames.SETTINGS | frames.PING:
                self._hear_control(frame)
            case frames.GOAWAY:
                self._hear_goaway(frame)
            case frames.PUSH_PROMISE:  # 8.4
                raise Violation(ErrorCodes.PROTOCOL_ERROR, "a client pushes nothing")
            case _:  # priorities (5.3.2), and nobody knows what (5.5)
                self.count("idle frames")

    def _hear_data(self, frame: Frame) -> None:
        connection = self._connection
        if frame.length and not self._inlet.take(frame.length):
            raise Violation(ErrorCodes.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        stream = connection.streams.get(frame.stream)
        if stream is None or stream.client_ended:
            self._hear_late_data(frame, stream)
            return
        if frame.length and not stream.inlet.take(frame.length):
            self._reset(stream, ErrorCodes.FLOW_CONTROL_ERROR)
            return
        self._touched.add(stream)
        is_last = bool(frame.is_last and frame.flags & END_STREAM)
        if frame.payload:
            stream.take(memoryview(frame.payload))
        elif not is_last:
            self.count("empty DATA")
        if is_last:
            connection.control.hear_end(frame.stream)
            stream.client_ended = True

    def _hear_late_data(self, frame: Frame, stream: "Stream | None") -> None:
        if stream is not None:  # 5.1, half-closed (remote)
            self._reset(stream, ErrorCodes.STREAM_CLOSED)
        elif frame.stream > self._connection.control.latest or not frame.stream % 2:
            raise Violation(ErrorCodes.PROTOCOL_ERROR, f"DATA on stream {frame.stream}, which was never begun")
        else:
            self.count("late DATA")

    def _hear_head(self, frame: Frame) -> None:
        self._head_bytes += frames.HEADER_BYTES + frame.length
        self.count("head bytes", frames.HEADER_BYTES + frame.length)
        events = self._connection.control.receive(frame)
        for event in events:
            self._understand(event)
        if frame.flags & frames.END_HEADERS:
            self._head_bytes = 0
            if not any(isinstance(event, RequestReceived) for event in events):
                self.count("mistakes")  # 5.1: a head on a stream that is over, or has had one

    def _understand(self, event: Event) -> None:
        connection = self._connection
        if isinstance(event, RequestReceived):
            is_ended = event.stream_ended is not None
            connection.answering.begin(event.stream_id, event.headers, head_bytes=self._head_bytes, is_ended=is_ended)
        elif isinstance(event, TrailersReceived):
            stream = connection.streams.get(event.stream_id)
            if stream is not None:  # 8.5: a tunnel has DATA and no other frames
                stream.end("client_gone", ErrorCodes.PROTOCOL_ERROR)
        elif isinstance(event, StreamReset):
            stream = connection.streams.get(event.stream_id)
            if stream is not None:  # h2 has told the client
                stream.end("client_gone")
        elif isinstance(event, RemoteSettingsChanged):
            self._set_first_window(connection.control.first_window)
        elif isinstance(event, PingAckReceived):
            connection.hear_echo(event.ping_data)

    def _hear_reset(self, frame: Frame) -> None:
        if frame.stream > self._connection.control.latest:
            raise Violation(ErrorCodes.PROTOCOL_ERROR, f"RST_STREAM on stream {frame.stream}, which was never begun")
        stream = self._connection.streams.get(frame.stream)
        if stream is None:
            self.count("idle frames")
            return
        self._connection.control.receive(frame)
        was_used = stream.task is None and (stream.received or stream.sent)
        stream.end("client_gone")
        if not was_used:
            self.count("resets")

    def _hear_control(self, frame: Frame) -> None:
        if frame.type == frames.PING:
            self.count("pings")
        elif not frame.flags & ACK:
            self.count("settings")
        for event in self._connection.control.receive(frame):
            self._understand(event)

    def _hear_goaway(self, frame: Frame) -> None:
        if frame.length < 8:
            raise Violation(ErrorCodes.FRAME_SIZE_ERROR, "GOAWAY is too short")
        self.count("idle frames")
        self._connection.client_leaves = True

    def _hear_window_update(self, frame: Frame) -> None:
        connection = self._connection
        self.count("WINDOW_UPDATE")
        increment = int.from_bytes(frame.payload) & LARGEST_WINDOW
        if not frame.stream:
            window = widened(connection.window, increment)
            if window is None or not increment:
                code = ErrorCodes.FLOW_CONTROL_ERROR if increment else ErrorCodes.PROTOCOL_ERROR
                raise Violation(code, f"the connection's window cannot be opened by {increment}")
            connection.window = window
            return
        stream = connection.streams.get(frame.stream)
        if stream is None:
            if frame.stream > connection.control.latest:
                raise Violation(ErrorCodes.PROTOCOL_ERROR, "WINDOW_UPDATE on a stream that was never begun")
            return
        window = widened(stream.window, increment)
        if window is None or not increment:
            self._reset(stream, ErrorCodes.FLOW_CONTROL_ERROR if increment else ErrorCodes.PROTOCOL_ERROR)
            return
        stream.window = window
        if window > 0:
            stream.resume()

    def _set_first_window(self, first: int) -> None:
        """Move all windows by what the first one has moved (6.9.2)."""
        change, self._first_window = first - self._first_window, first
        for stream in list(self._connection.streams.values()) if change else ():
            window = widened(stream.window, change)
            if window is None:
                raise Violation(ErrorCodes.FLOW_CONTROL_ERROR, "the settings make a stream's window too wide")
            stream.window = window
            if window > 0:
                stream.resume()

    def _reset(self, stream: "Stream", code: ErrorCodes) -> None:
        """End a stream for what the client did wrong in it."""
        stream.end("client_gone", code)
        self.count("mistakes")
