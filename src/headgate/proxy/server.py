"""The listening part of the prefetch proxy: its sockets, its clock, its end.

Plain sockets, told by one poll, from the accept to the end of the tunnel: neither a transport nor a task belongs to a
connection that waits. Who may have a tunnel, and where to, is the decision's; see `asked`.
"""

import asyncio
import contextlib
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headgate.proxy.admission.clients import client_of
from headgate.proxy.connect import Complain, Decide
from headgate.proxy.http1.connection import Http1Connection
from headgate.proxy.net.connector import Connector
from headgate.proxy.net.listener import Listener, listening_sockets
from headgate.proxy.net.poller import READ, Ready, new_poll
from headgate.proxy.net.tls import Handshake
from headgate.proxy.page import Page
from headgate.proxy.tunnel import Relay

__all__ = ["CLIENT_CONNECTIONS", "Connection", "Patience", "TunnelServer", "Upgrade"]

_TICK = 0.25
"""Seconds between two looks at whose time is over."""
_SPARE = 256
"""Connections beyond the most that are told so; those beyond these are only closed."""
CLIENT_CONNECTIONS = 256
"""Connections of one client at once, unless another bound is given."""
_MOST_SHAKING = 1024
"""Connections that shake hands at once: they take three times the memory of those that have done."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds a client is waited for."""

    handshake: float = 10.0
    """From the accept until TLS is agreed on."""
    quiet: float = 30.0
    """Until the first byte of a head, the first one's and each further one's."""
    head: float = 10.0
    """From a head's first byte to its last."""
    linger: float = 2.0
    """From the last answer, while what comes is still read so that the answer is not lost."""


class Connection(Ready, Protocol):
    """A client's connection that is no tunnel (yet)."""

    deadline: float
    """When, on the coarse clock, `expire` is due."""

    @property
    def busy(self) -> int:
        """How many tunnels there are within it, those being decided on included."""

    @property
    def passed(self) -> tuple[int, int]:
        """How many bytes the tunnels within it have had received and sent so far."""

    def expire(self) -> None:
        """Hear that its time is over."""

    def drain(self) -> None:
        """Hear that the end of the proxy has begun."""

    def close(self) -> None:
        """End at once, with everything within."""


class Upgrade(Protocol):
    """Makes the connection for a protocol agreed on in TLS."""

    def __call__(
        self, server: "TunnelServer", sock: ssl.SSLSocket, peer: tuple[str, int], *, surplus: bool
    ) -> Connection:
        """Make it: the poll tells it of reads from then on, `surplus` says that it is a connection too many.

        It has the poll forget its socket and calls `server.leave` when it is over, and `server.left` when it is less
        busy.
        """


class TunnelServer:
    """Listens, and relays what `decide` lets through; `complain` gives the refusals of what is not to be decided on.

    At most `connections` at once: clients beyond are told so. One client has at most `client_connections`, HTTP/1.1
    tunnels not counted (0: no bound); further ones are closed at once. `upgrades` are the protocols beside HTTP/1.1, by
    their names in ALPN; `pages` is what is published, by path. Runs on the event loop it is made on, and on no other.
    """

    def __init__(
        self,
        decide: Decide,
        complain: Complain,
        *,
        connections: int = 16384,
        client_connections: int = CLIENT_CONNECTIONS,
        patience: Patience | None = None,
        upgrades: dict[str, Upgrade] | None = None,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        self.decide = decide
        self.complain = complain
        self.pages = pages or {}
        """What is published now, by path."""
        self.patience = patience or Patience()
        self.poll = new_poll()
        self.relay = Relay(self.poll, now=time.monotonic() + _TICK, left=self.left)
        self.connector = Connector(self.poll, now=time.monotonic())
        """Connects sockets for whoever decides."""
        self.connections: set[Connection] = set()
        """Those that are no tunnels; the tunnels are the relay's."""
        self.draining = False
        """Whether the end has begun."""
        self._surplus: set[Connection] = set()
        self._most_of_a_client = client_connections or math.inf
        self._clients: dict[Connection, bytes] = {}
        self._client_connections: dict[bytes, int] = {}
        self._shaking: dict[Connection, None] = {}
        self._most = connections
        self._upgrades = upgrades or {}
        self._listeners: list[Listener] = []
        self.loop = asyncio.get_running_loop()
        """Where everything happens."""
        self._ticking: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._deadline = 0.0
        self._closed = False
        self._cut = 0

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: host and port of every listening socket."""
        return [listener.address for listener in self._listeners]

    @property
    def busy(self) -> int:
        """How many tunnels there are, those being decided on included."""
        return len(self.relay.tunnels) + sum(connection.busy for connection in self.connections)

    @property
    def passed(self) -> tuple[int, int]:
        """How many bytes clients have received and sent so far through tunnels that are open."""
        each = [(tunnel.near.passed, tunnel.far.passed) for tunnel in self.relay.tunnels]
        each += [connection.passed for connection in self.connections if connection.busy]
        return sum(received for received, _ in each), sum(sent for _, sent in each)

    @property
    def seconds_left(self) -> float:
        """How long it still takes at most, once the end has begun."""
        return max(0.0, self._deadline - time.monotonic())

    async def start(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        reuse_port: bool = False,
        sock: socket.socket | None = None,
    ) -> None:
        """Listen at `host` and `port` (0: one that is free), or on `sock`; may be called again for another listener.

        `tls` makes it a TLS listener; see `server_context`. Raises `OSError` when the address cannot be had.
        """
        sockets = [sock] if sock is not None else await listening_sockets(host, port, reuse_port=reuse_port)
        self._listeners += [Listener(self, each, tls) for each in sockets]
        if self._ticking is None:
            self._tick()

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use another context for the handshakes of connections from now on, at all TLS listeners."""
        for listener in self._listeners:
            listener.renew(tls)

    async def drain(self, seconds: float, *, elsewhere: Callable[[], bool] = lambda: False) -> int:
        """End: listen no more, give the tunnels at most `seconds`, then close everything.

        Returns how many tunnels were cut. A second call, while the first one waits, cuts them at once. As long as there
        are tunnels `elsewhere`, in other processes of the proxy, clients that stay are still told that it ends.
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
                    if self.busy:
                        await self._idle.wait()
                    while elsewhere() and not self._closed:  # noqa: ASYNC110  # no event comes from other processes
                        await asyncio.sleep(_TICK)
        return self._close()

    def _close(self) -> int:
        self._closed = True
        self._cut += self.busy
        if self._ticking is not None:
            self._ticking.cancel()
        for connection in list(self.connections):
            connection.close()
        self.relay.close("drained")
        self.poll.close()
        return self._cut

    # What connections call.

    def page(self, method: str, target: str) -> Page | None:
        """Give what is published where a request without a body asks for it."""
        return self.pages.get(target.partition("?")[0]) if method in {"GET", "HEAD"} else None

    def enter(self, sock: socket.socket, peer: tuple[str, int], tls: ssl.SSLContext | None) -> None:
        """Take a new connection in; or not, where there are too many."""
        client = client_of(peer[0])
        if self._client_connections.get(client, 0) >= self._most_of_a_client:
            self.complain("client_connections", peer)
            sock.close()
            return
        # Those that are only told so take no other connection's place.
        surplus = len(self.connections) + len(self.relay.tunnels) - len(self._surplus) >= self._most
        if surplus and len(self._surplus) >= _SPARE:
            self.complain("connections", peer)
            sock.close()
            return
        connection: Connection
        if tls is None:
            connection = Http1Connection(self, sock, peer, surplus=surplus)
        else:
            connection = Handshake(self, sock, peer, tls, surplus=surplus)
        self._take_in(connection, client, surplus=surplus)
        self.poll.watch(sock.fileno(), READ, connection)
        connection.ready(READ)  # a client's first bytes are often there by now

    def shaken(self, sock: ssl.SSLSocket, peer: tuple[str, int], *, surplus: bool) -> None:
        """Go on with a connection that is inside TLS now, in the protocol that was agreed on."""
        upgrade = self._upgrades.get(sock.selected_alpn_protocol() or "")
        connection: Connection
        if upgrade is not None:
            connection = upgrade(self, sock, peer, surplus=surplus)
        else:  # and for who has agreed on nothing, whatever was offered
            connection = Http1Connection(self, sock, peer, surplus=surplus)
        self._take_in(connection, client_of(peer[0]), surplus=surplus)
        self.poll.hand_over(sock.fileno(), connection)

    def _take_in(self, connection: Connection, client: bytes, *, surplus: bool) -> None:
        self.connections.add(connection)
        self._clients[connection] = client
        self._client_connections[client] = self._client_connections.get(client, 0) + 1
        if surplus:
            self._surplus.add(connection)

    def shake(self, connection: Connection) -> None:
        """Hear that a connection has begun to shake hands; too many at once, and the one that has for longest ends."""
        self._shaking[connection] = None
        if len(self._shaking) > _MOST_SHAKING:
            next(iter(self._shaking)).close()

    def leave(self, connection: Connection) -> None:
        """Let go of a connection that is over, or has become a tunnel."""
        self.connections.discard(connection)
        self._surplus.discard(connection)
        self._shaking.pop(connection, None)
        client = self._clients.pop(connection, None)
        if client is not None:
            left = self._client_connections.pop(client) - 1
            if left:
                self._client_connections[client] = left
        if self.draining:
            self.loop.call_soon(self.left)  # it may be a tunnel in a moment

    def left(self) -> None:
        """See whether that was the last tunnel, if anybody waits for it."""
        if self.draining and not self.busy:
            self._idle.set()

    def _tick(self) -> None:
        """See whose time is over, cheaper than a timer for each, and move the coarse clock on."""
        self.relay.now = now = time.monotonic()
        for connection in [one for one in self.connections if one.deadline <= now]:
            connection.expire()
        self.relay.look_after()
        # Whatever begins or moves until the next look does so before then: no time is over too early.
        self.relay.now = now + _TICK
        self.connector.look_after(now)
        self._ticking = self.loop.call_later(_TICK, self._tick)
