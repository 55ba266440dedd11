"""A client connection that speaks HTTP/2: its socket, its state, and its streams.

In one turn: read what there is, up to a limit; handle every event of the engine; write what arrived for each tunnel;
let the client send more; send what is to be sent.

The shutdown is announced with a GOAWAY of the largest stream identifier (RFC 9113, 6.8) and a PING. Requests that the
client sent before it read that are refused by the decision; the answer to the PING says that all of them have arrived.
"""

import math
import socket
from typing import Final

from headgate.proxy.http2.buffers import READ_SIZE, SendBuffer, SharedBuffers, read_available
from headgate.proxy.http2.dispatch import RequestDispatcher
from headgate.proxy.http2.engine import Http2Engine
from headgate.proxy.http2.events import (
    TRANSITIONS,
    Event,
    GoawayReceived,
    Http2Event,
    Http2State,
    PingAnswered,
    RequestReceived,
    StreamReset,
    WindowIncreased,
)
from headgate.proxy.http2.frames import MAX_PAYLOAD_SIZE, DataReceived, ErrorCode, Http2Error
from headgate.proxy.http2.limits import INITIAL_WINDOW
from headgate.proxy.http2.stream import ConnectionStream, TunnelStream
from headgate.proxy.poller import MAX_BUFFERED, READ, TLS_RECORD_SIZE, WRITE
from headgate.proxy.services import Services
from headgate.proxy.sockets import WOULD_BLOCK, limit_unsent, record_overhead, shutdown_write

_MAX_CONTROL_SIZE: Final = 1 << 16
"""Bytes of frames queued for a client that does not read."""
_HELD_ASIDE: Final = 1 << 20
"""Bytes that tunnels may hold back without reducing the window of the whole connection."""
_ROUND_TRIP: Final = 1.0
"""Seconds until everything has arrived that a client sent before it read of the shutdown."""
_PROBE: Final = b"headgate"


class Http2Connection:
    """One connection. `surplus` marks one above the limit of connections, whose requests are refused."""

    __slots__ = (
        "_blocked", "_buffers", "_client_leaves", "_dispatcher", "_engine", "_events", "_held", "_idle_until",
        "_incomplete", "_incomplete_until", "_loop_state", "_may_have_unsent", "_probe_answered",
        "_read_needs_write", "_read_size", "_send_buffer", "_services", "_socket", "_streams", "_touched",
        "deadline", "state",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        sock: socket.socket,
        peer: tuple[str, int],
        *,
        buffers: SharedBuffers,
        surplus: bool,
    ) -> None:
        self._services = services
        self._loop_state = services.loop_state
        self._socket = sock
        self._buffers = buffers
        self._engine = Http2Engine()
        self._dispatcher = RequestDispatcher(
            self, self._engine, services, data=buffers.data, peer=peer, overhead=record_overhead(sock), surplus=surplus
        )
        self._send_buffer = SendBuffer(sock, self._loop_state, self._engine.output)
        self.state = Http2State.OPEN
        self._streams: dict[int, TunnelStream] = {}
        self._touched: set[TunnelStream] = set()  # DATA arrived for them in this turn
        self._blocked: dict[ConnectionStream, None] = {}  # they have more to send than there is room for, in order
        self._held = 0  # bytes from the client that are buffered, in all tunnels together
        self._read_size = TLS_RECORD_SIZE
        self._events = READ
        self._client_leaves = False  # the client opens no more streams
        self._probe_answered = False  # all requests from before the shutdown was read have arrived
        self._may_have_unsent = False  # a tunnel has closed whose last bytes may not have arrived
        self._read_needs_write = False  # TLS cannot read before it has written
        self._incomplete = 0  # see Http2Engine.incomplete_input
        self._incomplete_until = math.inf
        self._idle_until = self.deadline = self._loop_state.now + services.timeouts.idle
        self._wait_for(READ | WRITE)  # the first turn sends the settings
        limit_unsent(sock)
        if services.draining:
            self._announce_shutdown()  # it started during the handshake

    # What the poller and the server call.

    @property
    def tunnels(self) -> int:
        """The number of tunnels, including undecided requests.

        During the shutdown, a connection whose tunnels have closed counts until the client has received everything.
        """
        return len(self._streams) or int(self._services.draining and self._may_have_unsent)

    @property
    def bytes_passed(self) -> tuple[int, int]:
        """Bytes that open tunnels have received and sent so far."""
        tunnels = self._streams.values()
        return sum(tunnel.received for tunnel in tunnels), sum(tunnel.forwarded for tunnel in tunnels)

    def ready(self, events: int) -> None:
        """Run a turn; see `Pollable`."""
        if not self._is_active:
            self._discard_input(events)
            return
        try:
            if events & WRITE:
                self._read_needs_write = False
                self._flush()
            if events & READ and self._is_active:
                self._read()
        except Http2Error as error:
            self.close(error.code, error.detail)
        self.finish_turn()

    def expire(self) -> None:
        """Close what has had its time, and compute the next deadline."""
        now = self._loop_state.now
        if not self._is_active:
            self._lost()
            return
        for stream in [one for one in self._streams.values() if one.deadline <= now]:
            stream.expire()
        if self._incomplete_until <= now:
            self.close(ErrorCode.ENHANCE_YOUR_CALM, "a frame or head was not completed in time")
        elif not self._streams and self._idle_until <= now:
            self.close(ErrorCode.NO_ERROR, "idle")
        else:
            self.finish_turn()
        if self._is_active:
            self._schedule()

    def drain(self) -> None:
        """Announce the shutdown; requests that still arrive are refused by the decision."""
        if self.state is Http2State.OPEN:
            self._announce_shutdown()
            self.finish_turn()

    def close(self, code: ErrorCode, detail: str) -> None:
        """Close gracefully: tell the client, and discard for a while what it still sends."""
        was_open = self.state is Http2State.OPEN
        if not self._transition(Http2Event.CLOSE):
            return
        if was_open:
            self._may_have_unsent = False  # a shutdown that starts later does not wait for this connection
        for stream in list(self._streams.values()):
            stream.close("client_gone")
        self._engine.shut_down(code, detail)
        self.deadline = self._loop_state.now + self._services.timeouts.linger
        self._discard_input(0)

    def abort(self) -> None:
        """Close at once, with all tunnels inside."""
        if self._is_active:
            for stream in list(self._streams.values()):
                stream.close("drained")
            self.close(ErrorCode.NO_ERROR, "the proxy has shut down")
        self._lost()

    # What streams and the dispatcher call; see `DispatchSink`.

    def add_stream(self, stream: TunnelStream) -> None:
        """Add a stream."""
        self._streams[stream.stream_id] = stream
        self.deadline = min(self.deadline, stream.deadline)

    def stream_opened(self, stream: TunnelStream) -> None:
        """Take the deadline of a stream whose tunnel was opened into account."""
        self.deadline = min(self.deadline, stream.deadline)

    def capacity(self, stream: ConnectionStream) -> int:
        """Return how many bytes a stream may send now; if several wait, each has a share in turn."""
        if not self._is_active:
            return 0
        if not self._send_control() or self._engine.send_window <= 0:
            self._blocked[stream] = None
            return 0
        is_tight = self._loop_state.buffered >= MAX_BUFFERED
        share = MAX_PAYLOAD_SIZE if is_tight else max(READ_SIZE // (1 + len(self._blocked)), MAX_PAYLOAD_SIZE)
        return min(self._engine.send_capacity(stream.stream_id), share)

    def send_data(self, stream_id: int, frames: memoryview, count: int) -> None:
        """Send frames of DATA."""
        self._engine.data_sent(stream_id, count)
        try:
            self._send_buffer.send(frames)
        except OSError:
            self._lost()
        else:
            self._wait_for(READ | WRITE if self._send_buffer.is_blocked else READ)

    def end_stream(self, stream_id: int) -> None:
        """End our direction of a stream."""
        self._engine.end_stream(stream_id)

    def increase_window(self, stream_id: int, held: int, *, growth: int) -> None:
        """Let the client send more on a stream."""
        self._engine.update_stream_window(stream_id, held, growth=growth)

    def count_held(self, change: int) -> None:
        """Count bytes from the client that are buffered."""
        self._held += change

    def stream_closed(self, stream: ConnectionStream, code: ErrorCode) -> None:
        """Forget a stream that is closed."""
        del self._streams[stream.stream_id]
        self._blocked.pop(stream, None)
        self._may_have_unsent = True
        if self._is_active:
            self._engine.close_stream(stream.stream_id, code)
        if not self._streams:
            is_draining = self.state is Http2State.DRAINING
            self._idle_until = self._loop_state.now + (_ROUND_TRIP if is_draining else self._services.timeouts.idle)
            self._schedule()
        self._services.tunnel_closed()

    def finish_turn(self) -> None:
        """Send what this turn has produced, and close if nothing is left to do."""
        if not self._is_active:
            return
        self._increase_connection_window()
        self._resume_blocked()
        if not self._send_control():
            if len(self._engine.output) > _MAX_CONTROL_SIZE:
                self.close(ErrorCode.ENHANCE_YOUR_CALM, "responses are not read")
        elif not self._streams and (self._client_leaves or self._probe_answered):
            self.close(ErrorCode.NO_ERROR, "nothing is left to do")

    # Reading.

    def _read(self) -> None:
        """Read, handle events, and write what arrived for tunnels. Raises `Http2Error`."""
        try:
            count, ended, needs_write = read_available(self._socket, self._buffers.input, self._read_size)
        except OSError:
            self._lost()
            return
        if needs_write:
            if self._read_needs_write:
                self._lost()  # an error, or an end, that is reported in no other way
                return
            # The client renews its keys and reads no answer to that: its input would be reported again and again.
            self._read_needs_write = True
            self._wait_for(WRITE)
        if count:
            payload = self._handle(self._buffers.input[:count])
            # Many small frames take long to handle: a client that sends those has shorter turns.
            self._read_size = min(READ_SIZE, 2 * self._read_size) if payload * 2 > count else TLS_RECORD_SIZE
            self._watch_incomplete_input()
        if ended and self._is_active:
            self._lost()

    def _handle(self, data: memoryview) -> int:
        """Handle received bytes; returns how many of them were payload of DATA. Raises `Http2Error`."""
        payload, streams, touched = 0, self._streams, self._touched
        for event in self._engine.receive(data, now=self._loop_state.now):
            if type(event) is DataReceived:
                payload += sum(map(len, event.pieces))
                stream = streams.get(event.stream_id)
                if stream is not None:
                    stream.add(event.pieces)
                    stream.client_ended = event.is_last
                    touched.add(stream)
                continue
            self._other_received(event)
            if not self._is_active:
                break
        while touched:
            touched.pop().deliver()  # while the buffer is unchanged
        return payload

    def _other_received(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._dispatcher.dispatch(event)
            case StreamReset(stream_id):
                if stream_id in self._streams:
                    self._streams[stream_id].close("client_gone")
            case WindowIncreased(0):
                for stream in list(self._streams.values()):
                    stream.resume()
            case WindowIncreased(stream_id):
                if stream_id in self._streams:
                    self._streams[stream_id].resume()
            case PingAnswered(data):
                self._probe_answered |= self.state is Http2State.DRAINING and data == _PROBE
            case GoawayReceived():
                self._client_leaves = True

    # Sending.

    def _increase_connection_window(self) -> None:
        """Let the client send more, by what was forwarded, or is buffered where that slows no other tunnel."""
        is_tight = self._loop_state.buffered > MAX_BUFFERED // 2
        held = max(0, self._held - (0 if is_tight else _HELD_ASIDE))
        growth = 0 if is_tight or self._held else self._buffers.allowed_growth
        self._buffers.window_growth += self._engine.update_window(held, growth=growth)

    def _resume_blocked(self) -> None:
        """Resume streams that had no room, the first one first, as long as there is room."""
        while self._blocked and self._engine.send_window > 0 and self._send_control():
            stream = next(iter(self._blocked))
            del self._blocked[stream]
            stream.send_more()

    def _send_control(self) -> bool:
        """Send control frames, unless the system takes no more; returns whether it takes more."""
        return not self._send_buffer.is_blocked and (not self._engine.output or self._flush())

    def _flush(self) -> bool:
        """Send what is buffered; returns whether all is sent."""
        try:
            is_sent = self._send_buffer.flush()
        except OSError:
            self._lost()
            return False
        self._wait_for(READ if is_sent else READ | WRITE)
        return is_sent

    # The life of the connection.

    @property
    def _is_active(self) -> bool:
        return self.state is Http2State.OPEN or self.state is Http2State.DRAINING

    def _transition(self, event: Http2Event) -> bool:
        """Change the state; returns whether the event means anything in the present one."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True

    def _announce_shutdown(self) -> None:
        self._transition(Http2Event.DRAIN)
        self._may_have_unsent = self._send_buffer.is_blocked
        self._engine.announce_shutdown(_PROBE)
        self._idle_until = self._loop_state.now + _ROUND_TRIP
        self._schedule()

    def _watch_incomplete_input(self) -> None:
        """Limit the time for a frame or head, from its first byte."""
        before, self._incomplete = self._incomplete, self._engine.incomplete_input
        if not self._incomplete:
            self._incomplete_until = math.inf
        elif self._incomplete != before:
            self._incomplete_until = self._loop_state.now + self._services.timeouts.head
            self.deadline = min(self.deadline, self._incomplete_until)

    def _schedule(self) -> None:
        """Compute the next deadline."""
        own = self._incomplete_until if self._streams else min(self._incomplete_until, self._idle_until)
        self.deadline = min([own, *[stream.deadline for stream in self._streams.values()]])

    def _discard_input(self, events: int) -> None:
        """Send what is left to send, and discard what arrives."""
        if events & READ:
            try:
                if not socket.socket.recv_into(self._socket, self._buffers.input):  # below TLS: it is not decrypted
                    self._lost()
                    return
            except WOULD_BLOCK:
                pass
            except OSError:
                self._lost()
                return
        if self.state is Http2State.CLOSING and self._flush():
            self._transition(Http2Event.FLUSHED)
            shutdown_write(self._socket)

    def _lost(self) -> None:
        """Close at once: the client has left."""
        if not self._transition(Http2Event.LOST):
            return
        for stream in list(self._streams.values()):
            stream.close("client_gone")
        self._may_have_unsent = False
        self._touched.clear()
        self._buffers.window_growth -= self._engine.receive_window.limit - INITIAL_WINDOW
        self._send_buffer.discard()
        self._loop_state.poller.unregister(self._socket.fileno())
        self._socket.close()
        self._services.connection_closed(self)

    def _wait_for(self, events: int) -> None:
        if self._read_needs_write:
            events = WRITE
        if events != self._events:
            self._events = events
            self._loop_state.poller.modify(self._socket.fileno(), events)
