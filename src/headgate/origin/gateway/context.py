"""What all connections of a gateway share: settings, policy, origins, clock, counts, and the open connections."""

import asyncio
import random
from itertools import islice
from typing import Final, Protocol

from headgate.config.tree import Gate
from headgate.origin.gateway.balancer import Balancer
from headgate.origin.gateway.buffer import Buffers
from headgate.origin.gateway.exchange import UpstreamPool
from headgate.origin.gateway.forwarding import ClientInfo
from headgate.origin.gateway.policy import GatewayPolicy
from headgate.origin.gateway.record import Observe
from headgate.origin.gateway.responses import ALLOW
from headgate.origin.gateway.settings import GatewaySettings
from headgate.origin.gateway.states import ClientState
from headgate.origin.gateway.tunnel import UpgradeTunnel
from headgate.origin.identify import client_address
from headgate.origin.permits import Permits

_MAX_TRIES: Final = 16
"""Idle connections that are tried at the limit: a client that does not read the end of its response keeps its own."""


class RegisteredConnection(Protocol):
    """A client's connection, as the registry and the gateway use it."""

    client: bytes
    """The client that it is counted for; empty when it is not counted."""
    state: ClientState
    """Its state."""
    deadline: float
    """The time of the gateway's clock at which `expire` is due."""

    def expire(self) -> None:
        """End the wait whose deadline has passed."""

    def drain(self) -> None:
        """Close after the response under way; without one, after the next request, or if none comes soon."""

    def abort(self, reason: str) -> None:
        """Close at once."""

    def give_way(self) -> bool:
        """Close an idle connection, unless its client still receives a response; returns whether it is closed."""


class ClientCounts:
    """The number of connections of each client.

    A client is an IPv4 address or an IPv6 network of 64 bits, as in `client_address`.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, int] = {}
        self._client_of = client_address().per_connection

    def enter(self, address: str, limit: int) -> bytes:
        """Count a new connection; returns the client, for `leave`, or empty bytes if it has `limit`; 0 sets none."""
        client = self._client_of(address) or b""
        count = self._open.get(client, 0)
        if 0 < limit <= count:
            return b""
        self._open[client] = count + 1
        return client

    def leave(self, client: bytes) -> None:
        """Count a closed connection; does nothing for empty bytes."""
        count = self._open.pop(client, 0)
        if count > 1:
            self._open[client] = count - 1


class ConnectionRegistry:
    """The connections and tunnels that are open, at most as many in all and of one client as `settings.bounds` says.

    At the limit of all, the connection that has been idle for longest gives way to a new one.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.connections: set[RegisteredConnection] = set()
        self.tunnels: set[UpgradeTunnel] = set()
        self._settings = settings
        self.idle: dict[RegisteredConnection, None] = {}
        """The connections that wait for a request, in the order in which they became idle."""
        self._counts = ClientCounts()
        self._empty = asyncio.Event()

    def enter(self, connection: RegisteredConnection, client: ClientInfo) -> str:
        """Register a connection; returns the reason when a limit is reached, else an empty text."""
        if not self.count(connection, client):
            return "client_limit"
        is_full = len(self.connections) + len(self.tunnels) >= self._settings.bounds.connections
        if is_full and not self._close_idle():
            self.leave(connection)
            return "limit"
        self.connections.add(connection)
        return ""

    def count(self, connection: RegisteredConnection, client: ClientInfo) -> bool:
        """Count a connection for its client; returns False if that has its limit of connections."""
        # A load balancer or a unix socket carries the connections of many clients.
        if not client.address or client.trusted:
            return True
        connection.client = self._counts.enter(client.address, self._settings.bounds.client_connections)
        return bool(connection.client)

    def _close_idle(self) -> bool:
        for connection in list(islice(self.idle, _MAX_TRIES)):
            del self.idle[connection]
            if connection.give_way():
                self.leave(connection)
                return True
            self.idle[connection] = None  # behind the others
        return False

    def leave(self, connection: RegisteredConnection) -> None:
        """Remove a connection."""
        self.connections.discard(connection)
        self.idle.pop(connection, None)
        self._counts.leave(connection.client)
        connection.client = b""
        self._check_empty()

    def open_tunnel(
        self, connection: RegisteredConnection, client: asyncio.Transport, origin: asyncio.Transport
    ) -> UpgradeTunnel:
        """Replace a connection by a tunnel between two transports, counted for the same client."""
        tunnel = UpgradeTunnel(client, origin, self._leave_tunnel)
        self.tunnels.add(tunnel)
        tunnel.client, connection.client = connection.client, b""
        self.connections.discard(connection)
        return tunnel

    def _leave_tunnel(self, tunnel: UpgradeTunnel) -> None:
        self.tunnels.discard(tunnel)
        self._counts.leave(tunnel.client)
        self._check_empty()

    async def emptied(self) -> None:
        """Wait until all connections and tunnels are closed."""
        if self.connections or self.tunnels:
            self._empty.clear()
            await self._empty.wait()

    def _check_empty(self) -> None:
        if not self.connections and not self.tunnels:
            self._empty.set()


class GatewayContext(GatewaySettings):
    """Made once by a gateway and given to each of its connections."""

    def __init__(
        self,
        policy: GatewayPolicy,
        gate: Gate,
        *,
        allow: bytes = ALLOW,
        permits: Permits | None = None,
        observe: Observe | None = None,
    ) -> None:
        super().__init__(gate)
        self.policy = policy
        """The policy for further requests; it may be replaced (by `msgspec.structs.replace`) at any time."""
        self.balancer: Balancer[UpstreamPool] = Balancer((), random.random)
        """Chooses the origin for a request."""
        self.registry = ConnectionRegistry(self)
        self.buffers = Buffers(self, policy.log)
        """The buffers of slow clients."""
        self.allow = allow
        """The value of Allow in a response to a method that is never served."""
        self.permits = permits
        """The permits for further requests, if there is a concurrency limit; may be replaced at any time."""
        self.observe = observe
        """Receives the record of each request at its end; None where no one needs it. May be replaced at any time."""
