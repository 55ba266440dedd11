"""The streams of an HTTP/2 connection: a `TunnelStream` relays, a `PageStream` sends a published page.

A tunnel is a CONNECT request that is decided on, then a relay to its target. What the client sends is written to the
target at the end of the turn in which it arrived, in one call; only what the system does not take is copied and
buffered, and until it is written the client's window stays as it is. The target is read while the client's windows are
open and nothing waits to be sent to the client. The end of one direction is passed on after its last byte, and the
other direction goes on; a lost connection becomes a reset (RFC 9113, 8.5).
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.proxy.connect import AcceptedConnect, CloseReason, TunnelLimits
from headgate.proxy.http2.buffers import READ_SIZE, DataBuffer
from headgate.proxy.http2.frames import DATA, MAX_PAYLOAD_SIZE, ErrorCode, header
from headgate.proxy.http2.limits import MAX_STREAM_WINDOW
from headgate.proxy.net.poller import MAX_BUFFERED, READ, WRITE, LoopState
from headgate.proxy.net.sockets import reset

_MAX_PIECES: Final = 64
"""Pieces written in one call; more are joined first."""
_RESET_CODES: Final = {"target_gone": ErrorCode.CONNECT_ERROR}
"""From the end of a tunnel to the error code that the client receives; CANCEL for the others."""


class ConnectionStream(Protocol):
    """What a connection needs of its streams."""

    deadline: float

    @property
    def stream_id(self) -> int:
        """The stream's identifier."""

    @property
    def is_tunnel(self) -> bool:
        """Whether it is a tunnel, or may become one."""

    def resume(self) -> None:
        """Send more when its turn comes: the client allows it."""

    def send_more(self) -> None:
        """Send more now: it is this stream's turn."""

    def expire(self, now: float) -> None:
        """Handle the deadline."""

    def close(self, reason: CloseReason, code: ErrorCode | None = None) -> None:
        """Close the stream."""


class StreamSink(Protocol):
    """What a stream needs of its connection."""

    def capacity(self, stream: ConnectionStream) -> int:
        """Return how many bytes of DATA a stream may send now; if 0, it is resumed when there is room."""

    def send_data(self, stream_id: int, frames: memoryview, count: int) -> None:
        """Send frames of DATA with `count` bytes of payload, for which there was capacity."""

    def end_stream(self, stream_id: int) -> None:
        """End our direction of a stream."""

    def increase_window(self, stream_id: int, held: int, *, growth: int) -> None:
        """Let the client send more, except for `held` bytes that are buffered."""

    def count_held(self, change: int) -> None:
        """Count bytes from the client that are buffered."""

    def stream_closed(self, stream: ConnectionStream, code: ErrorCode) -> None:
        """Forget a stream that is closed, and reset it with `code` unless it has ended."""

    def finish_turn(self) -> None:
        """Send what this turn has produced."""


class TunnelStream:
    """A tunnel in a stream; `decision` is set while its request is decided on."""

    __slots__ = (
        "_counts_bytes", "_data", "_descriptor", "_events", "_latest", "_limits", "_on_closed", "_pieces",
        "_read_size", "_registered", "_sink", "_socket", "_state", "_target_ended", "_unsent", "client_ended", "closed",
        "deadline", "decision", "received", "sent", "stream_id",
    )  # fmt: skip

    is_tunnel = True

    def __init__(self, sink: StreamSink, stream_id: int, *, state: LoopState, data: DataBuffer) -> None:
        self._sink = sink
        self._state = state
        self._data = data
        self.stream_id = stream_id
        self.decision: asyncio.Future[Any] | None = None
        """The decision, while it is pending."""
        self.client_ended = False
        """Whether the client has ended its direction."""
        self.closed = False
        self.deadline = math.inf
        """When to call `expire`, on the coarse clock; a decision has timeouts of its own."""
        self.received = self.sent = 0
        self._pieces: list[memoryview] = []  # received in this turn
        self._unsent = bytearray()  # received in earlier turns
        self._socket: socket.socket | None = None
        self._limits = TunnelLimits()
        self._target_ended = self._registered = self._counts_bytes = False
        self._read_size = MAX_PAYLOAD_SIZE
        self._events = 0
        self._latest = math.inf

    @property
    def forwarded(self) -> int:
        """Bytes from the client that were written to the target."""
        return self.sent - len(self._unsent)

    def open(self, accepted: AcceptedConnect) -> None:
        """Start to relay."""
        limits = accepted.limits
        self._socket, self._on_closed, self._limits = accepted.socket, accepted.on_closed, limits
        self._descriptor = accepted.socket.fileno()
        self._counts_bytes = limits.counts_bytes
        self._latest = self._state.now + limits.max_seconds
        self.deadline = min(self._state.now + limits.idle, self._latest)
        self._wait_for(READ | WRITE if self._unsent else READ)
        if self.client_ended:
            self._end_target()

    def ready(self, events: int) -> None:
        """Write to and read from the target what can be; see `Pollable`."""
        if events & WRITE and not self.closed:
            self._flush()
        if events & READ and not self.closed:
            if self._events & READ:
                self._read_target()
            elif self._registered:
                self._handle_unrequested()
        self._sink.finish_turn()

    def add(self, pieces: Sequence[memoryview]) -> None:
        """Add slices of DATA, which `deliver` has to write before the buffer is used again."""
        self._pieces += pieces

    def deliver(self) -> None:
        """Write what arrived in this turn to the target, and the end."""
        if self.closed:
            return  # it ended in this turn; 9113 5.1: no frame may be sent on it any more
        pieces, self._pieces = self._pieces, []
        size = sum(map(len, pieces))
        if size and not (self._may_pass(sent=size) and self._write(pieces, size)):
            return
        if self.client_ended:
            self._end_target()
        else:
            self._increase_window()

    def resume(self) -> None:
        """Read the target when it has sent something."""
        if self._socket is not None and not self._target_ended:
            self._wait_for(self._events | READ)

    def send_more(self) -> None:
        """Read the target now."""
        self.resume()
        if self._events & READ:
            self._read_target()

    def expire(self, now: float) -> None:
        """Close: the time is over."""
        self.close("max_seconds" if now >= self._latest else "idle")

    def close(self, reason: CloseReason, code: ErrorCode | None = None) -> None:
        """Close the target and the stream, and report it, once. `code` replaces the code that belongs to `reason`."""
        if self.closed:
            return
        self.closed = True
        if self.decision is not None:
            self.decision.cancel()
        forwarded = self.forwarded
        self._count_held(-len(self._unsent))
        self._unsent = bytearray()
        self._pieces = []
        if self._socket is not None:
            self._state.poller.unregister(self._descriptor)
            (reset if reason in {"client_gone", "target_gone"} else socket.socket.close)(self._socket)
            self._socket = None
            self._on_closed(self.received, forwarded, reason)
        if code is None:
            code = _RESET_CODES.get(reason, ErrorCode.CANCEL)
        self._sink.stream_closed(self, code)

    # From the target to the client.

    def _read_target(self) -> None:
        """Read what there is, once, and send it on."""
        size = min(self._sink.capacity(self), self._read_size)
        if self._socket is None:
            return  # the client's connection was found to be lost
        if size <= 0:
            self._wait_for(self._events & ~READ)
            return
        if self._counts_bytes:
            size = self._limits.read_size(self.received + self.sent, size)
        slots = self._data.slots(size)
        try:
            count = self._socket.recv_into(slots[0]) if len(slots) == 1 else self._socket.recvmsg_into(slots)[0]
        except BlockingIOError:
            return
        except OSError:
            self.close("target_gone")
            return
        if not count:
            self._handle_target_end()
            return
        self._read_size = READ_SIZE if count >= min(size, MAX_PAYLOAD_SIZE) else MAX_PAYLOAD_SIZE
        if self._may_pass(received=count):
            self._sink.send_data(self.stream_id, self._data.frames(count, self.stream_id), count)

    def _handle_target_end(self) -> None:
        self._target_ended = True
        self._wait_for(self._events & ~READ)
        self._sink.end_stream(self.stream_id)
        if self.client_ended and not self._unsent:
            self.close("ended")

    def _handle_unrequested(self) -> None:
        """Handle EPOLLERR and EPOLLHUP, which are reported even if no events were requested."""
        if self._socket is not None and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close("target_gone")
        else:
            self._state.poller.unregister(self._descriptor)  # it would be reported again and again
            self._events = 0
            self._registered = False

    # From the client to the target.

    def _write(self, pieces: list[memoryview], size: int) -> bool:
        """Write pieces of `size` bytes, or buffer them; returns whether the tunnel is still open."""
        written = 0
        if self._socket is not None and not self._unsent:
            if len(pieces) > _MAX_PIECES:
                pieces = [memoryview(b"".join(pieces))]
            try:
                written = self._socket.send(pieces[0]) if len(pieces) == 1 else self._socket.sendmsg(pieces)
            except BlockingIOError:
                pass
            except OSError:
                self.close("target_gone")
                return False
        if written < size:
            self._count_held(size - written)
            for piece in pieces:
                self._unsent += piece[written:]
                written = max(0, written - len(piece))
            if self._socket is not None:
                self._wait_for(self._events | WRITE)
        return True

    def _flush(self) -> None:
        """Write what is buffered, then the end, or let the client send more."""
        if self._socket is None or not self._unsent:
            self._wait_for(self._events & ~WRITE)
            return
        try:
            written = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self.close("target_gone")
            return
        del self._unsent[:written]
        self._count_held(-written)
        self._extend_deadline()
        if not self._unsent:
            self._wait_for(self._events & ~WRITE)
        if self.client_ended:
            self._end_target()
        else:
            self._increase_window()

    def _end_target(self) -> None:
        """Pass the client's end on, if nothing is buffered before it."""
        if self._socket is None or self._unsent:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if self._target_ended:
            self.close("ended")

    def _increase_window(self) -> None:
        """Let the client send more; a larger window only while everything is forwarded at once."""
        flows = not self._unsent and self._state.buffered < MAX_BUFFERED // 4
        self._sink.increase_window(self.stream_id, len(self._unsent), growth=MAX_STREAM_WINDOW if flows else 0)

    def _count_held(self, change: int) -> None:
        self._state.buffered += change
        self._sink.count_held(change)

    # Both directions.

    def _extend_deadline(self) -> None:
        if self._socket is not None:
            self.deadline = min(self._state.now + self._limits.idle, self._latest)

    def _may_pass(self, *, received: int = 0, sent: int = 0) -> bool:
        """Count bytes and extend the deadline; if a limit is exceeded, close the tunnel and return False."""
        if self._counts_bytes:
            exceeded = self._limits.exceeded_by(self.received + received, self.sent + sent, sending=sent > 0)
            if exceeded is not None:
                self.close(exceeded)
                return False
        self.received += received
        self.sent += sent
        self._extend_deadline()
        return True

    def _wait_for(self, events: int) -> None:
        if events == self._events:
            return
        if self._registered:
            self._state.poller.modify(self._descriptor, events)
        else:
            self._state.poller.register(self._descriptor, events, self)
            self._registered = True
        self._events = events


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
