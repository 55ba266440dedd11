"""The streams of an HTTP/2 connection: each relays a tunnel.

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

from headgate.proxy.connect import DEFAULT_IDLE, AcceptedConnect, CloseReason
from headgate.proxy.http2.buffers import READ_SIZE, DataBuffer
from headgate.proxy.http2.frames import MAX_PAYLOAD_SIZE, ErrorCode
from headgate.proxy.http2.limits import MAX_STREAM_WINDOW
from headgate.proxy.poller import MAX_BUFFERED, READ, WRITE, LoopState
from headgate.proxy.sockets import reset

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

    def resume(self) -> None:
        """Send more when its turn comes: the client allows it."""

    def send_more(self) -> None:
        """Send more now: it is this stream's turn."""

    def expire(self) -> None:
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
        "_data", "_descriptor", "_events", "_idle", "_on_closed", "_pieces",
        "_read_size", "_registered", "_sink", "_socket", "_state", "_target_ended", "_unsent", "client_ended", "closed",
        "deadline", "decision", "received", "sent", "stream_id",
    )  # fmt: skip

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
        self._idle = DEFAULT_IDLE
        self._target_ended = self._registered = False
        self._read_size = MAX_PAYLOAD_SIZE
        self._events = 0

    @property
    def forwarded(self) -> int:
        """Bytes from the client that were written to the target."""
        return self.sent - len(self._unsent)

    def open(self, accepted: AcceptedConnect) -> None:
        """Start to relay."""
        self._socket, self._on_closed, self._idle = accepted.socket, accepted.on_closed, accepted.idle
        self._descriptor = accepted.socket.fileno()
        self._extend_deadline()
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
        if size:
            self.sent += size
            self._extend_deadline()
            if not self._write(pieces, size):
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

    def expire(self) -> None:
        """Close: nothing passed for too long."""
        self.close("idle")

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
        self.received += count
        self._extend_deadline()
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
            self.deadline = self._state.now + self._idle

    def _wait_for(self, events: int) -> None:
        if events == self._events:
            return
        if self._registered:
            self._state.poller.modify(self._descriptor, events)
        else:
            self._state.poller.register(self._descriptor, events, self)
            self._registered = True
        self._events = events
