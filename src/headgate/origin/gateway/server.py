"""The gateway as a whole: its listeners, its clock, its end."""

import asyncio
import contextlib
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from headgate.config.address import is_host
from headgate.config.tree import Bounds, Timeouts
from headgate.errors import ConfigurationError
from headgate.limit import Gatekeeper
from headgate.origin.gateway.clients import ClientConnections
from headgate.origin.gateway.connection import AgentConnection
from headgate.origin.gateway.forwarding import Peer
from headgate.origin.gateway.local import ALLOW, advice_response, answering_advice
from headgate.origin.gateway.plan import Policy, Reject, Respond
from headgate.origin.gateway.tunnel import TunnelEnd
from headgate.origin.gateway.upstream import Pool
from headgate.origin.identify import Identify, client_address
from headgate.origin.routes import Routes

__all__ = ["Gateway"]

_LONGEST_TICK = 0.25
_BACKLOG = 1024


class Gateway:
    """A reverse proxy that asks a gatekeeper about every request.

    `origin` is the origin's URL, `http://HOST:PORT`. `reject(accounting, now=…, accept=…)` writes the response to a
    rejected request. `advice` is the traffic advice document, answered here when given, fresh for `advice_max_age`
    seconds; `local` answers what else is answered here, the gatekeeper unasked, and `lifeboat` the rejected requests
    that it has an answer for. `trusted` lists the CIDRs of the operator's own proxies: what they say about earlier
    hops is continued, what others say is replaced. `observe(event)` is told of what is out of the ordinary: `refused`,
    `retried`, `unreachable`, `slow`, `truncated`, `crowded`, `crowded_client`, `lifeboat`; the same are counted
    in `counts`.

    Runs on the event loop that `start` is called on, and on no other. Raises `ConfigurationError` for an origin that
    is not a plain http URL.
    """

    def __init__(
        self,
        *,
        origin: str,
        gatekeeper: Gatekeeper,
        identify: Identify,
        routes: Routes,
        reject: Reject,
        advice: bytes | None = None,
        advice_max_age: int = 1800,
        local: Respond | None = None,
        lifeboat: Respond | None = None,
        trusted: Iterable[str] = (),
        timeouts: Timeouts | None = None,
        bounds: Bounds | None = None,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.bounds = bounds or Bounds()
        self.counts: Counter[str] = Counter()
        """How often each event out of the ordinary happened."""
        self.connections: set[AgentConnection] = set()
        self.tunnels: set[TunnelEnd] = set()
        self.clients = ClientConnections(self.bounds.client_connections)
        """How many of both each client has."""
        self.allow = ALLOW
        """What Allow says of a method that is never served."""
        self.draining = False
        """Whether the end has begun: no connection outlives the response under way."""
        self.pool = Pool(*_host_and_port(origin), self.bounds)
        self.policy = Policy(
            gatekeeper=gatekeeper,
            identify=identify,
            routes=routes,
            reject=reject,
            local=local if advice is None else answering_advice(advice_response(advice, advice_max_age), local),
            lifeboat=lifeboat,
            is_trusted=_trust(trusted),
        )
        """What requests are decided by. It may be replaced (by `msgspec.structs.replace`) at any time."""
        self._observe = observe
        self._empty = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._tick_seconds = min(_LONGEST_TICK, *(value / 8 for value in _seconds(self.timeouts)))

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: host and port of every listening socket."""
        return [sock.getsockname()[:2] for server in self._servers for sock in server.sockets]

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        tls: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        sock: socket.socket | None = None,
    ) -> None:
        """Listen at `host` and `port` (0: one that is free), or on `sock`; may be called again for another listener.

        `tls` makes it a TLS listener; see `TlsKeys`. Raises `OSError` when the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._tick()
        shake = self.timeouts.header if tls else None

        def protocol() -> AgentConnection:
            return AgentConnection(self)

        if sock is not None:
            server = await loop.create_server(
                protocol, sock=sock, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=shake
            )
        else:
            server = await loop.create_server(
                protocol,
                host,
                port,
                ssl=tls,
                backlog=_BACKLOG,
                ssl_handshake_timeout=shake,
                reuse_port=reuse_port or None,
            )
        self._servers.append(server)

    async def drain(self, seconds: float) -> None:
        """Stop: accept no more, let requests under way finish for at most `seconds`, then close everything."""
        self.draining = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._emptied()
        for connection in list(self.connections):
            connection.abort()
        for tunnel in list(self.tunnels):
            tunnel.transport.abort()
        self.pool.close()
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.sleep(0)  # lets the closed connections hear that they are

    async def _emptied(self) -> None:
        if self.connections or self.tunnels:
            self._empty.clear()
            await self._empty.wait()

    # What connections call.

    def enter(self, connection: AgentConnection, peer: Peer) -> str:
        """Count a connection in; returns why there is no room for it, empty when there is."""
        if len(self.connections) + len(self.tunnels) // 2 >= self.bounds.connections:
            self.note("crowded")
            return "connection limit reached"
        # One load balancer, or one unix socket, stands for many clients.
        if peer.address and not peer.trusted:
            connection.client = self.clients.enter(peer.address)
            if not connection.client:
                self.note("crowded_client")
                return "connection limit of this client address reached"
        self.connections.add(connection)
        return ""

    def leave(self, connection: AgentConnection) -> None:
        """Count a connection out."""
        self.connections.discard(connection)
        self.clients.leave(connection.client)
        connection.client = b""
        self.left()

    def left(self) -> None:
        """See whether that was the last connection."""
        if not self.connections and not self.tunnels:
            self._empty.set()

    def peer(self, transport: asyncio.Transport) -> Peer:
        """Say who is at the other end."""
        name = transport.get_extra_info("peername")
        address = str(name[0]) if isinstance(name, tuple) else ""
        if address.startswith("::ffff:") and "." in address:
            address = address[7:]  # an IPv4 agent at a socket for both
        tls = transport.get_extra_info("ssl_object") is not None
        return Peer(address, trusted=self.policy.is_trusted(address), tls=tls)

    def note(self, event: str) -> None:
        """Count an event out of the ordinary."""
        self.counts[event] += 1
        if self._observe is not None:
            self._observe(event)

    def _tick(self) -> None:
        """Move the coarse clock on, and see whose time is over: cheaper than a timer per request."""
        if self._ticking is not None:
            self._ticking.cancel()
        now = time.monotonic()
        self.pool.tick(now)
        for connection in [one for one in self.connections if one.deadline <= now]:
            connection.expire()
        self._ticking = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)


def _host_and_port(origin: str) -> tuple[str, int]:
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    more = parts.path not in {"", "/"} or parts.query or parts.username
    if parts.scheme != "http" or not parts.hostname or not is_host(parts.hostname) or more:
        raise ConfigurationError(f"origin {origin!r} is not http://HOST:PORT; try 'http://127.0.0.1:8000'")
    return parts.hostname, port or 80


def _trust(trusted: Iterable[str]) -> Callable[[str], bool]:
    addresses = client_address(trusted)
    return lambda peer: addresses.per_connection(peer) is None


def _seconds(timeouts: Timeouts) -> tuple[float, ...]:
    return timeouts.header, timeouts.idle, timeouts.connect, timeouts.response, timeouts.response_body or math.inf
