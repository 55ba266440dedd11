"""Flow control at a client's connection: when to read from it, and whether the client reads."""

import asyncio
import socket
import struct
import sys

_TCP_INFO = struct.Struct("=24xI92xQ16xI")
"""Of Linux's `struct tcp_info`: segments sent and not acknowledged, bytes acknowledged, bytes not sent yet."""


def send_progress(transport: asyncio.Transport) -> int | None:
    """Return a number that changes as the peer acknowledges bytes; None when it has acknowledged all.

    The size of the transport's buffer is not enough: it stays as it is while the system's own buffer drains, and with
    TLS the transport beneath has another one. Linux counts the bytes that the peer has acknowledged.
    Elsewhere than on Linux, and where the socket is not TCP, it is the number of bytes in the transport's buffer.
    """
    waiting = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sys.platform != "linux" or sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return waiting or None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return waiting or None
    if len(info) < _TCP_INFO.size:
        return waiting or None
    unacknowledged, acknowledged, unsent = _TCP_INFO.unpack(info)
    return int(acknowledged) if waiting or unacknowledged or unsent else None


class FlowControl:
    """Pauses reading while too much is buffered or the origin is slow, and detects whether the client reads."""

    __slots__ = ("_buffer_full", "_last_progress", "_transport", "upstream_slow")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._buffer_full = False
        self._last_progress: int | None = None
        self.upstream_slow = False
        """Whether sending the request's body to the origin is paused."""

    def set_buffer_full(self, full: bool) -> None:  # noqa: FBT001 - a setter
        """Pause while the buffer is full."""
        if full is not self._buffer_full:
            self._buffer_full = full
            self._update()

    def set_upstream_slow(self, slow: bool) -> None:  # noqa: FBT001 - a setter
        """Pause while the origin is slow."""
        self.upstream_slow = slow
        self._update()

    def release(self) -> None:
        """Read again, for whatever reason reading was paused."""
        self._buffer_full = self.upstream_slow = False
        self._update()

    def client_reads(self) -> bool:
        """Return whether the client has acknowledged bytes since the last call."""
        progress, last = send_progress(self._transport), self._last_progress
        self._last_progress = progress
        return progress is not None and progress != last

    def _update(self) -> None:
        if self._transport.is_closing():
            return
        if self._buffer_full or self.upstream_slow:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
