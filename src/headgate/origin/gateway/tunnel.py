"""A tunnel: two connections, each byte of one written to the other, once both sides agreed to speak WebSocket."""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from headgate.origin.gateway.connection import AgentConnection
    from headgate.origin.gateway.server import Gateway
    from headgate.origin.gateway.upstream import OriginConnection

__all__ = ["TunnelEnd", "join", "reset_on_close"]

_PROBE_AFTER = 60
"""Seconds of silence until the system asks whether the other end is still there; a tunnel has no other timeout."""


class TunnelEnd(asyncio.Protocol):
    """One of the two connections of a tunnel: what it receives goes out at the `other`."""

    __slots__ = ("_ended", "_gateway", "client", "other", "transport")

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._ended = False
        self.client = b""
        """What the gateway counts the tunnel under, at the agent's end."""
        self.transport = cast("asyncio.Transport", None)
        self.other = cast("TunnelEnd", None)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        if not self.other.transport.is_closing():
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Hold the other end back: this one reads slowly."""
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Let the other end go on."""
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        """Pass on that this side has said all, and let the other side go on; returns whether to stay open."""
        self._ended = True
        other = self.other.transport
        if self.other._ended or other.is_closing() or not other.can_write_eof():  # noqa: SLF001 - the same class
            return False
        other.write_eof()
        return self.transport.can_write_eof()  # TLS cannot stay half open, and its loops complain when asked to

    def connection_lost(self, _error: Exception | None) -> None:
        """End the other side too, after what is still to be sent there."""
        self._gateway.tunnels.discard(self)
        self._gateway.clients.leave(self.client)
        self._gateway.left()
        if not self.other.transport.is_closing():
            self.other.transport.close()


def join(agent: "AgentConnection", origin: "OriginConnection", greeting: bytes) -> None:
    """Make a tunnel of two connections; `greeting` is the first that the agent hears."""
    near, far = TunnelEnd(agent.gateway), TunnelEnd(agent.gateway)
    near.other, far.other = far, near
    agent.gateway.tunnels |= {near, far}
    near.client, agent.client = agent.client, b""
    far.transport = origin.hand_over(far)
    near.transport, early = agent.hand_over(near)
    for end in (near, far):
        keep_alive(end.transport)
    near.transport.write(greeting)
    if early:
        far.transport.write(early)


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
