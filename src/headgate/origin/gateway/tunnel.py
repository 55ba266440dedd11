"""A tunnel: two connections whose bytes are passed on to each other, after a WebSocket handshake."""

import asyncio
import socket
import struct
from collections.abc import Callable

_PROBE_AFTER = 60
"""Seconds without traffic before TCP keep-alive probes; idle tunnels are not closed."""


class UpgradeTunnel:
    """Two connections, each of which sends what the other receives; `on_closed` is called when both are closed."""

    def __init__(
        self, client: asyncio.Transport, origin: asyncio.Transport, on_closed: "Callable[[UpgradeTunnel], None]"
    ) -> None:
        self._open_ends = 2
        self.client = b""
        """The client that the tunnel is counted for."""
        self.client_end = UpgradeTunnelEnd(self, client, origin)
        self.origin_end = UpgradeTunnelEnd(self, origin, client)
        self._on_closed = on_closed

    def abort(self) -> None:
        """Close both connections at once."""
        self.client_end.transport.abort()
        self.origin_end.transport.abort()

    def end_lost(self) -> None:
        """Report that the connection of one end is closed."""
        self._open_ends -= 1
        if not self._open_ends:
            self._on_closed(self)


class UpgradeTunnelEnd(asyncio.Protocol):
    """One of the two connections of a tunnel: the bytes it receives are written to the `other` one.

    It closes when its peer sends no more, and the other one with it: half of a WebSocket connection is of no use, and
    a connection that is not read any more does not report a reset.
    """

    __slots__ = ("_other", "_tunnel", "transport")

    def __init__(self, tunnel: UpgradeTunnel, transport: asyncio.Transport, other: asyncio.Transport) -> None:
        self._tunnel = tunnel
        self._other = other
        self.transport = transport
        transport.set_protocol(self)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if not self._other.is_closing():
            self._other.write(data)

    def pause_writing(self) -> None:
        """Stop reading at the other end: this one reads slowly."""
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """Read again at the other end."""
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """Close the other end too, after its buffer is sent."""
        self._tunnel.end_lost()
        if not self._other.is_closing():
            self._other.close()


def reset_on_close(transport: asyncio.Transport) -> None:
    """Make the system close the connection with a TCP reset."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def keep_alive(transport: asyncio.Transport) -> None:
    """Enable TCP keep-alive, which detects that the peer of an idle connection is gone."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER)
