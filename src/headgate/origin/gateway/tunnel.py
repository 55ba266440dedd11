"""A tunnel: two connections, each byte of one written to the other, once both sides agreed to speak WebSocket."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

__all__ = ["TunnelEnd", "join", "reset_on_close"]

_PROBE_AFTER = 60
"""Seconds of silence until the system asks whether the other end is still there; a tunnel has no other timeout."""


class TunnelEnd(asyncio.Protocol):
    """One of the two connections of a tunnel: what it receives is sent to the `other`."""

    __slots__ = ("_ended", "_on_closed", "client", "other", "transport")

    def __init__(self, on_closed: "Callable[[TunnelEnd], None]") -> None:
        self._on_closed = on_closed
        self._ended = False
        self.client = b""
        """What the tunnel is counted under, at the client's end."""
        self.transport = cast("asyncio.Transport", None)
        self.other = cast("TunnelEnd", None)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if not self.other.transport.is_closing():
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading at the other end: this one reads slowly."""
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again at the other end."""
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        """Close the sending half of the other end; returns whether to stay open for what it still sends."""
        self._ended = True
        other = self.other.transport
        if self.other._ended or other.is_closing() or not other.can_write_eof():  # noqa: SLF001 - the same class
            return False
        other.write_eof()
        return self.transport.can_write_eof()  # TLS cannot stay half open, and its loops complain when asked to

    def connection_lost(self, _error: Exception | None) -> None:
        """Close the other end too, after what is still to be sent there."""
        self._on_closed(self)
        if not self.other.transport.is_closing():
            self.other.transport.close()


def join(
    near: asyncio.Transport, far: asyncio.Transport, on_closed: Callable[[TunnelEnd], None]
) -> tuple[TunnelEnd, TunnelEnd]:
    """Make a tunnel of two connections; returns their ends. `on_closed` is called as each end closes."""
    ends = TunnelEnd(on_closed), TunnelEnd(on_closed)
    for end, other, transport in zip(ends, ends[::-1], (near, far), strict=True):
        end.other, end.transport = other, transport
        transport.set_protocol(end)
        keep_alive(transport)
    return ends


def reset_on_close(transport: asyncio.Transport) -> None:
    """Have the system end the connection with a reset instead of an end."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def keep_alive(transport: asyncio.Transport) -> None:
    """Have the system find out when the other end of an idle connection is gone."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER)
