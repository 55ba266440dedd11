"""The server of the prefetch proxy: its listeners, its connections and tunnels, its clock, its shutdown.

Plain sockets and one poller, from the accept to the end of the tunnel: an idle connection has neither a transport nor a
task. Who may have a tunnel, and where to, is decided elsewhere; see `connect`.
"""

import asyncio
import contextlib
import math
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

from headgate.proxy.admission.limits import client_of
from headgate.proxy.connect import AcceptedConnect, Connection, Decide, RefuseEarly, TunnelTimeouts
from headgate.proxy.dial import Connector
from headgate.proxy.http1 import Http1Connection
from headgate.proxy.http2 import Http2Connection
from headgate.proxy.listener import Handshake, Listener
from headgate.proxy.poller import READ, LoopState, new_poller
from headgate.proxy.tunnel import Tunnels

DEFAULT_CLIENT_CONNECTIONS: Final = 256
"""Connections of one client at once, unless another limit is given."""

_TICK: Final = 0.25
"""Seconds between two checks of deadlines."""
_MAX_SURPLUS: Final = 256
"""Connections above the limit whose requests are refused; further ones are closed at once."""
_MAX_HANDSHAKES: Final = 1024
"""Concurrent TLS handshakes: each needs three times the memory of a connection afterwards."""


class TunnelServer:
    """Accepts connections, and relays the tunnels that `decide` accepts. It is the `Services` of its connections.

    At most `connections` are open at once; requests of further ones are refused. At most `client_connections` are open
    for one client, without HTTP/1.1 tunnels (0: no limit); further ones are closed at once. For the event loop that it
    is created on.
    """

    def __init__(
        self,
        decide: Decide,
        refuse_early: RefuseEarly,
        *,
        connections: int = 16384,
        client_connections: int = DEFAULT_CLIENT_CONNECTIONS,
        timeouts: TunnelTimeouts | None = None,
    ) -> None:
        self.decide = decide
        self.refuse_early = refuse_early
        self.timeouts = timeouts or TunnelTimeouts()
        self.loop_state = LoopState(new_poller(), now=time.monotonic() + _TICK)
        self.tunnels = Tunnels(self.loop_state, on_closed=self.tunnel_closed)
        """The HTTP/1.1 tunnels; those of HTTP/2 are inside their connections."""
        self.connector = Connector(self.loop_state.poller, now=time.monotonic())
        """Connects sockets to targets."""
        self.connections: set[Connection] = set()
        self.draining = False
        """Whether the graceful shutdown has started."""
        self._surplus: set[Connection] = set()
        self._max_connections = connections
        self._max_client_connections = client_connections or math.inf
        self._clients: dict[Connection, bytes] = {}
        self._client_connections: dict[bytes, int] = {}
        self._handshakes: dict[Connection, None] = {}
        self._listeners: list[Listener] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._no_tunnels = asyncio.Event()
        self._deadline = 0.0
        self._closed = False
        self._cut = 0

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return [listener.address for listener in self._listeners]

    @property
    def tunnel_count(self) -> int:
        """The number of tunnels, including undecided requests."""
        return len(self.tunnels.open) + sum(connection.tunnels for connection in self.connections)

    @property
    def bytes_passed(self) -> tuple[int, int]:
        """Bytes that open tunnels have received and sent so far."""
        pairs = [(tunnel.client_end.passed, tunnel.target_end.passed) for tunnel in self.tunnels.open]
        pairs += [connection.bytes_passed for connection in self.connections if connection.tunnels]
        return sum(received for received, _ in pairs), sum(sent for _, sent in pairs)

    @property
    def seconds_left(self) -> float:
        """Seconds until the shutdown is complete at the latest."""
        return max(0.0, self._deadline - time.monotonic())

    def start(self, sock: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections at a listening socket; may be called again for another one.

        `tls` makes it a TLS listener; see `server_context`.
        """
        self._listeners.append(Listener(sock, poller=self.loop_state.poller, tls=tls, on_accept=self._accepted))
        if self._timer is None:
            self._tick()

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another context for the handshakes of new connections, at all TLS listeners."""
        for listener in self._listeners:
            listener.replace_tls(tls)

    async def drain(self, seconds: float, *, others_have_tunnels: Callable[[], bool] = lambda: False) -> int:
        """Shut down: stop listening, give the tunnels at most `seconds`, then close everything.

        Returns how many tunnels were cut. A second call, while the first one waits, cuts them at once. As long as other
        processes of the proxy have tunnels, connected clients are still told that it shuts down.
        """
        if self.draining:
            return self._close()
        self.draining = True
        self._deadline = time.monotonic() + seconds
        while self._listeners:
            self._listeners.pop().close()
        for connection in list(self.connections):
            connection.drain()
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    if self.tunnel_count:
                        await self._no_tunnels.wait()
                    while others_have_tunnels() and not self._closed:  # noqa: ASYNC110  # other processes send no event
                        await asyncio.sleep(_TICK)
        return self._close()

    def _close(self) -> int:
        self._closed = True
        self._cut += self.tunnel_count
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()
        self.tunnels.close("drained")
        self.loop_state.poller.close()
        return self._cut

    # What connections call; see `Services`.

    def start_tunnel(self, client: socket.socket, accepted: AcceptedConnect, early_data: bytes) -> None:
        """Relay between a client's socket and its target."""
        self.tunnels.start(client, accepted, early_data)

    def handshake_started(self, connection: Connection) -> None:
        """Count a TLS handshake; if there are too many, close the oldest."""
        self._handshakes[connection] = None
        if len(self._handshakes) > _MAX_HANDSHAKES:
            next(iter(self._handshakes)).abort()

    def handshake_finished(self, sock: ssl.SSLSocket, peer: tuple[str, int], *, surplus: bool) -> None:
        """Continue with the protocol that the handshake selected; without ALPN that is HTTP/1.1."""
        protocol = Http2Connection if sock.selected_alpn_protocol() == "h2" else Http1Connection
        connection: Connection = protocol(self, sock, peer, surplus=surplus)
        self._add(connection, client_of(peer[0]), surplus=surplus)
        self.loop_state.poller.hand_over(sock.fileno(), connection)

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection that is closed or has become a tunnel."""
        self.connections.discard(connection)
        self._surplus.discard(connection)
        self._handshakes.pop(connection, None)
        client = self._clients.pop(connection, None)
        if client is not None:
            left = self._client_connections.pop(client) - 1
            if left:
                self._client_connections[client] = left
        if self.draining:
            self._loop.call_soon(self.tunnel_closed)  # it may become a tunnel in this turn

    def tunnel_closed(self) -> None:
        """During the shutdown, check whether that was the last tunnel."""
        if self.draining and not self.tunnel_count:
            self._no_tunnels.set()

    def _accepted(self, sock: socket.socket, peer: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        """Add a new connection, or close it if there are too many."""
        client = client_of(peer[0])
        if self._client_connections.get(client, 0) >= self._max_client_connections:
            self.refuse_early("client_connections", peer)
            sock.close()
            return
        # Surplus connections count apart, so that they take no other connection's place.
        surplus = len(self.connections) + len(self.tunnels.open) - len(self._surplus) >= self._max_connections
        if surplus and len(self._surplus) >= _MAX_SURPLUS:
            self.refuse_early("connections", peer)
            sock.close()
            return
        connection: Connection
        if tls is None:
            connection = Http1Connection(self, sock, peer, surplus=surplus)
        else:
            connection = Handshake(self, sock, peer, tls, surplus=surplus)
        self._add(connection, client, surplus=surplus)
        self.loop_state.poller.register(sock.fileno(), READ, connection)
        connection.ready(READ)  # a client's first bytes have often arrived already

    def _add(self, connection: Connection, client: bytes, *, surplus: bool) -> None:
        self.connections.add(connection)
        self._clients[connection] = client
        self._client_connections[client] = self._client_connections.get(client, 0) + 1
        if surplus:
            self._surplus.add(connection)

    def _tick(self) -> None:
        """Check deadlines, which is cheaper than a timer for each, and advance the coarse clock."""
        self.loop_state.now = now = time.monotonic()
        for connection in [one for one in self.connections if one.deadline <= now]:
            connection.expire()
        self.tunnels.expire()
        # What starts or moves until the next check does so before then: nothing expires too early.
        self.loop_state.now = now + _TICK
        self.connector.expire(now)
        self._timer = self._loop.call_later(_TICK, self._tick)
