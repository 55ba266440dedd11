"""An HTTP/2 connection between two sockets of this process, outside TLS, at a server with a clock of the test's."""

import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headgate.proxy.http2 import Http2Connection
from headgate.proxy.poller import READ
from headgate.proxy.server import TunnelServer
from tests.e2e.http2_client import Http2Client, http2_at
from tests.e2e.tunnels import StubDecision

NOW = 1000.0
PEER = ("192.0.2.1", 5000)


class Unexpected:
    """Stands for the handshake before the connection."""

    def ready(self, events: int) -> None:
        raise AssertionError(events)


class Connected:
    """A server, its connection, the client at the other end, and the decision."""

    def __init__(
        self, server: TunnelServer, connection: Http2Connection, client: Http2Client, decision: StubDecision
    ) -> None:
        self.server = server
        self.connection = connection
        self.client = client
        self.decision = decision

    def advance(self, seconds: float) -> None:
        """Advance the server's clock, and let what is due expire."""
        self.server.loop_state.now += seconds
        for connection in [one for one in self.server.connections if one.deadline <= self.server.loop_state.now]:
            connection.expire()
        self.server.tunnels.expire()


@asynccontextmanager
async def connected(
    decision: StubDecision | None = None,
    *,
    surplus: bool = False,
    draining: bool = False,
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Connected]:
    """Connect to a server, which shuts down already if `draining`."""
    decision = decision or StubDecision()
    server = decision.server = TunnelServer(decision, decision.refuse_early, **settings)
    server.loop_state.now = NOW
    server.draining = draining
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    server.loop_state.poller.register(ours.fileno(), READ, Unexpected())
    near = Http2Connection(server, ours, PEER, surplus=surplus)
    server.connections.add(near)
    server.loop_state.poller.hand_over(ours.fileno(), near)
    try:
        async with http2_at((), sock=theirs, **(client or {})) as far:
            yield Connected(server, near, far, decision)
    finally:
        with contextlib.suppress(OSError):
            await server.drain(0)
