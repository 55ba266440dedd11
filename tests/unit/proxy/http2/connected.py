"""A connection of HTTP/2 between two sockets of this process, outside TLS, at a server whose clock stands still."""

import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headgate.proxy.http2.buffers import SharedBuffers
from headgate.proxy.http2.connection import Http2Connection
from headgate.proxy.net.poller import READ
from headgate.proxy.server import TunnelServer
from tests.e2e.http2_client import Http2Client, http2_at
from tests.e2e.tunnels import Deciding

NOW = 1000.0
PEER = ("192.0.2.1", 5000)


class Unexpected:
    """Stands for the handshake before the connection."""

    def ready(self, events: int) -> None:
        raise AssertionError(events)


class Both:
    """Both ends, and the server."""

    def __init__(self, server: TunnelServer, near: Http2Connection, far: Http2Client, deciding: Deciding) -> None:
        self.server = server
        self.near = near
        self.far = far
        self.deciding = deciding

    def wait(self, seconds: float) -> None:
        """Have time pass, as the server's own clock does."""
        self.server.loop_state.now += seconds
        for connection in [one for one in self.server.connections if one.deadline <= self.server.loop_state.now]:
            connection.expire()
        self.server.tunnels.expire()


@asynccontextmanager
async def connected(
    deciding: Deciding | None = None,
    *,
    surplus: bool = False,
    ending: bool = False,
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Both]:
    """Connect; `ending` has the end of the server begun before."""
    deciding = deciding or Deciding()
    server = deciding.server = TunnelServer(deciding, deciding.refuse_early, **settings)
    server.loop_state.now = NOW
    server.draining = ending
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    server.loop_state.poller.register(ours.fileno(), READ, Unexpected())
    near = Http2Connection(server, ours, PEER, buffers=SharedBuffers(), surplus=surplus)
    server.connections.add(near)
    server.loop_state.poller.hand_over(ours.fileno(), near)
    try:
        async with http2_at((), sock=theirs, **(client or {})) as far:
            yield Both(server, near, far, deciding)
    finally:
        with contextlib.suppress(OSError):
            await server.drain(0)
