"""Buffers of HTTP/2 connections: what is read, DATA frames built in place, and what the system did not take yet."""

import socket
import ssl
from typing import Final

from headgate.proxy.http2.frames import HEADER_SIZE, MAX_PAYLOAD_SIZE, write_data_header
from headgate.proxy.http2.limits import MAX_CONNECTION_WINDOW
from headgate.proxy.poller import TLS_RECORD_SIZE, LoopState
from headgate.proxy.sockets import WOULD_BLOCK

READ_SIZE: Final = 1 << 18
"""Bytes read from one connection before others have their turn."""
_MAX_READS: Final = 64
"""Reads from one connection before others have their turn: each returns one TLS record, however little is in it."""
_SEND_SIZE: Final = 1 << 16
"""Bytes given to the system at once: of these, TLS reports only whether all were sent."""
_MAX_WINDOW_GROWTH: Final = 1 << 25
"""Bytes by which the receive windows of all connections together may exceed their initial size."""


class DataBuffer:
    """Memory in which DATA frames are built: payloads are read into its slots, then headers are written between."""

    __slots__ = ("_memory", "_slots")

    def __init__(self, frames: int = READ_SIZE // MAX_PAYLOAD_SIZE) -> None:
        self._memory = memoryview(bytearray(frames * (HEADER_SIZE + MAX_PAYLOAD_SIZE)))
        starts = range(HEADER_SIZE, len(self._memory), HEADER_SIZE + MAX_PAYLOAD_SIZE)
        self._slots = [self._memory[start : start + MAX_PAYLOAD_SIZE] for start in starts]

    def slots(self, size: int) -> list[memoryview]:
        """Return the slots for at most `size` bytes of payload: whole ones, or one that is smaller."""
        return self._slots[: size // MAX_PAYLOAD_SIZE] or [self._slots[0][:size]]

    def frames(self, count: int, stream_id: int) -> memoryview:
        """Return the frames that carry the `count` bytes read into the slots."""
        memory, position, left = self._memory, 0, count
        while left:
            size = min(left, MAX_PAYLOAD_SIZE)
            write_data_header(memory, position, size, stream_id)
            position += HEADER_SIZE + size
            left -= size
        return memory[:position]


class SharedBuffers:
    """What the HTTP/2 connections of one event loop share: two buffers, and how far their windows may grow."""

    def __init__(self) -> None:
        self.input = memoryview(bytearray(READ_SIZE + TLS_RECORD_SIZE))
        """What was read from a client, while it is processed."""
        self.data = DataBuffer()
        """What was read from a target, until it is sent or copied."""
        self.window_growth = 0
        """Bytes by which receive windows exceed their initial size."""

    @property
    def allowed_growth(self) -> int:
        """Bytes by which the window of a connection may grow."""
        return min(MAX_CONNECTION_WINDOW, _MAX_WINDOW_GROWTH - self.window_growth)


def read_available(sock: socket.socket, memory: memoryview, size: int) -> tuple[int, bool, bool]:
    """Read what there is, until it is `size` bytes or a little more.

    Returns the number of bytes, whether the client has ended, and whether TLS cannot read before it has written. Raises
    `OSError`.
    """
    count = 0
    try:
        for _ in range(_MAX_READS):
            got = sock.recv_into(memory[count : size + TLS_RECORD_SIZE])
            count += got
            if not got:
                return count, True, False
            if count >= size:
                break
    except ssl.SSLWantWriteError:
        return count, False, True
    except WOULD_BLOCK:
        pass
    return count, False, False


class SendBuffer:
    """The sending half of a client's socket.

    Control frames are added to `control` at any time and sent with the next `flush`. DATA is sent only while nothing is
    buffered, so at most one piece of it is kept.
    """

    __slots__ = ("_kept", "_socket", "_state", "control")

    def __init__(self, sock: socket.socket, state: LoopState, control: bytearray) -> None:
        self._socket = sock
        self._state = state
        self._kept = memoryview(b"")  # TLS requires a write that failed to be repeated with the same bytes
        self.control = control
        """Whole frames to be sent after what is buffered."""

    @property
    def is_blocked(self) -> bool:
        """Whether the system takes no more now."""
        return bool(self._kept)

    def flush(self) -> bool:
        """Send what is buffered, then the control frames; returns whether all is sent. Raises `OSError`."""
        if self._kept:
            sent = self._send(self._kept)
            self._state.buffered -= sent
            self._kept = self._kept[sent:]
        if self.control and not self._kept:
            frames = bytes(self.control)
            self.control.clear()
            self.send(memoryview(frames))
        return not self._kept

    def send(self, frames: memoryview) -> None:
        """Send frames, and keep what the system does not take; only while nothing is buffered. Raises `OSError`."""
        position, end = 0, len(frames)
        while position < end:
            piece = frames[position : position + _SEND_SIZE]
            sent = self._send(piece)
            position += sent
            if sent < len(piece):
                self._kept = memoryview(bytes(frames[position:]))
                self._state.buffered += len(self._kept)
                return

    def discard(self) -> None:
        """Drop everything."""
        self._state.buffered -= len(self._kept)
        self._kept = memoryview(b"")
        self.control.clear()

    def _send(self, piece: memoryview) -> int:
        try:
            return self._socket.send(piece)
        except WOULD_BLOCK:
            return 0
