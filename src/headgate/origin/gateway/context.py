"""What all connections of a gateway share: settings, policy, pool, clock, counts, and the open connections."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from headgate.config.tree import Timeouts
from headgate.http.h1 import RequestLimits
from headgate.origin.gateway.forwarding import ClientInfo
from headgate.origin.gateway.policy import Policy
from headgate.origin.gateway.responses import ALLOW
from headgate.origin.gateway.states import GATEWAY_TRANSITIONS, GatewayEvent, GatewayState
from headgate.origin.gateway.tunnel import Tunnel
from headgate.origin.gateway.upstream import UpstreamPool
from headgate.origin.identify import client_address


class RegisteredConnection(Protocol):
    """A client's connection, as its gateway watches it."""

    client: bytes
    """What it is counted under; empty when it is not counted."""
    deadline: float
    """When `expire` is due, by the gateway's coarse clock."""

    def expire(self) -> None:
        """Stop waiting: the deadline is over."""

    def drain(self) -> None:
        """Close after the response under way; at once when there is none."""

    def abort(self) -> None:
        """Close at once."""


class ClientCounts:
    """The number of connections of each client, at most `limit`; 0 sets no limit.

    A client is an IPv4 address or an IPv6 network of 64 bits, as in `client_address`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[bytes, int] = {}
        self._client_of = client_address().per_connection

    def enter(self, address: str) -> bytes:
        """Count a connection in; returns the client, for `leave`, or empty bytes when its limit is reached."""
        client = self._client_of(address) or b""
        count = self._open.get(client, 0)
        if 0 < self._limit <= count:
            return b""
        self._open[client] = count + 1
        return client

    def leave(self, client: bytes) -> None:
        """Count a connection out; does nothing for empty bytes."""
        count = self._open.pop(client, 0)
        if count > 1:
            self._open[client] = count - 1


class ConnectionRegistry:
    """The connections and tunnels that are open; at most `limit`, and at most `client_limit` of one client."""

    def __init__(self, *, limit: int, client_limit: int) -> None:
        self.connections: set[RegisteredConnection] = set()
        self.tunnels: set[Tunnel] = set()
        self._limit = limit
        self._counts = ClientCounts(client_limit)
        self._empty = asyncio.Event()

    def enter(self, connection: RegisteredConnection, client: ClientInfo) -> str:
        """Count a connection in; returns the event that it counts as when a limit is reached, else an empty text."""
        if len(self.connections) + len(self.tunnels) >= self._limit:
            return "crowded"
        # One load balancer, or one unix socket, carries the connections of many clients.
        if client.address and not client.trusted:
            connection.client = self._counts.enter(client.address)
            if not connection.client:
                return "crowded_client"
        self.connections.add(connection)
        return ""

    def leave(self, connection: RegisteredConnection) -> None:
        """Count a connection out."""
        self.connections.discard(connection)
        self._counts.leave(connection.client)
        connection.client = b""
        self._check_empty()

    def open_tunnel(
        self, connection: RegisteredConnection, client: asyncio.Transport, origin: asyncio.Transport
    ) -> Tunnel:
        """Join two transports to the tunnel that a connection becomes, and count it under the same client."""
        tunnel = Tunnel(client, origin, self._leave_tunnel)
        self.tunnels.add(tunnel)
        tunnel.client, connection.client = connection.client, b""
        self.connections.discard(connection)
        return tunnel

    def _leave_tunnel(self, tunnel: Tunnel) -> None:
        self.tunnels.discard(tunnel)
        self._counts.leave(tunnel.client)
        self._check_empty()

    async def emptied(self) -> None:
        """Wait until there is neither a connection nor a tunnel."""
        if self.connections or self.tunnels:
            self._empty.clear()
            await self._empty.wait()

    def _check_empty(self) -> None:
        if not self.connections and not self.tunnels:
            self._empty.set()


class GatewayContext:
    """Made once by a gateway and given to each of its connections."""

    def __init__(
        self,
        policy: Policy,
        pool: UpstreamPool,
        registry: ConnectionRegistry,
        *,
        timeouts: Timeouts,
        limits: RequestLimits,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        self.policy = policy
        """What requests are decided by; it may be replaced at any time."""
        self.pool = pool
        self.registry = registry
        self.timeouts = timeouts
        self.limits = limits
        self.allow = ALLOW
        """The value of Allow in a response to a method that is never served."""
        self.state = GatewayState.NEW
        self.now = 0.0
        """Seconds of a coarse clock, moved on by the gateway's tick."""
        self.counts: Counter[str] = Counter()
        """How often each unusual event happened."""
        self._observe = observe

    @property
    def draining(self) -> bool:
        """Whether the gateway stops: no connection outlives the response under way."""
        return self.state is GatewayState.DRAINING or self.state is GatewayState.STOPPED

    def move(self, event: GatewayEvent) -> None:
        """Change the state; raises `RuntimeError` for an event that is not possible in the present one."""
        following = GATEWAY_TRANSITIONS[self.state].get(event)
        if following is None:
            raise RuntimeError(f"gateway: {event.name.lower()} is not possible once it is {self.state.name.lower()}")
        self.state = following

    def note(self, event: str) -> None:
        """Count an unusual event."""
        self.counts[event] += 1
        if self._observe is not None:
            self._observe(event)
