"""The gateway as a whole: its listeners, its clock, and how it stops."""

import asyncio
import contextlib
import math
import os
import random
import socket
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from headgate.config.origin_section import OriginSection
from headgate.config.tree import Gate, Timeouts
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.gateway.client_connection import ClientConnection
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.listener import PLAIN, ListenerSettings
from headgate.origin.gateway.origins import Origins
from headgate.origin.gateway.policy import GatewayPolicy
from headgate.origin.gateway.record import Observe
from headgate.origin.gateway.responses import ALLOW
from headgate.origin.gateway.settings import DRAIN_IDLE_TIMEOUT
from headgate.origin.gateway.states import ClientState
from headgate.origin.permits import Permits

MAX_TICK = 0.25
BACKLOG = 1024


class Gateway:
    """A reverse proxy that asks a gatekeeper about every request.

    `origins` lists the origins, and `policy` has the rules for requests. `allow` is the value of
    Allow in a response to a method that is never served. `concurrency` limits the requests in flight at the origin.
    Of `gate`, its timeouts, bounds and buffers apply. `observe` receives the record of each request at its end.

    Runs on the event loop that `start` is called on, and on no other. Raises `ConfigurationError` for files of an
    origin that cannot be used.
    """

    def __init__(
        self,
        origins: Sequence[OriginSection],
        policy: GatewayPolicy,
        *,
        gate: Gate | None = None,
        allow: bytes = ALLOW,
        concurrency: ConcurrencySettings | None = None,
        observe: Observe | None = None,
    ) -> None:
        permits = _permits(concurrency) if concurrency is not None else None
        self.context = GatewayContext(policy, gate or Gate(), allow=allow, permits=permits, observe=observe)
        """What its connections share; policy, settings and `observe` may be replaced at any time."""
        self.origins = Origins(origins, self.context)
        """The origins and the connections to them."""
        self.connections = self.context.registry.connections
        """The open connections of clients."""
        self.tunnels = self.context.registry.tunnels
        """The open tunnels."""
        self._servers: list[tuple[asyncio.Server, Callable[[], ClientConnection]]] = []
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket that has them."""
        names = [sock.getsockname() for server, _ in self._servers for sock in server.sockets]
        return [name[:2] for name in names if isinstance(name, tuple)]

    @property
    def connection_states(self) -> dict[str, int]:
        """The number of connections by state, and of tunnels."""
        counts = Counter(connection.state for connection in self.connections)
        states = {state.name.lower(): counts[state] for state in ClientState if state is not ClientState.CLOSED}
        return states | {"closing": counts[ClientState.CLOSED], "tunnel": len(self.tunnels)}

    def limit_concurrency(self, settings: ConcurrencySettings | None) -> None:
        """Put other settings of the concurrency limit in force; the learned limit and the waiting requests stay."""
        context = self.context
        if context.permits is None:
            context.permits = _permits(settings) if settings is not None else None
        elif settings is not None:
            context.permits.reconfigure(settings)
        else:
            context.permits.reconfigure(replace(context.permits.limit.settings, mode="off"))
            context.permits = None

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        listener: ListenerSettings = PLAIN,
        sock: socket.socket | None = None,
    ) -> None:
        """Listen at `host` and `port` (0: one that is free), or on `sock`; may be called again for another listener.

        `sock` may be a unix socket. Raises `OSError` when it cannot listen there, and `RuntimeError` once `drain` was
        called.
        """
        if self.context.draining:
            raise RuntimeError("gateway: start is not possible once it drains")
        loop = asyncio.get_running_loop()
        self._tick()

        def protocol() -> ClientConnection:
            return ClientConnection(self.context, listener)

        if sock is not None and sock.family == socket.AF_UNIX:
            # Since Python 3.13 the file would be removed, although another gate or worker listens at the socket.
            options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
            server: asyncio.Server = await loop.create_unix_server(protocol, sock=sock, backlog=BACKLOG, **options)
        elif sock is not None:
            server = await loop.create_server(protocol, sock=sock, backlog=BACKLOG)
        else:
            server = await loop.create_server(protocol, host, port, backlog=BACKLOG)
        self._servers.append((server, protocol))

    async def drain(self, seconds: float, *, delay: float = 0.0) -> None:
        """Stop: let requests under way finish for at most `seconds`, then close everything.

        New connections are accepted for `delay` seconds more. From the beginning, each response ends its connection and
        says so; a connection without a request is closed a moment after the listeners, as a request may be on its way.
        """
        # A second drain with less time: the shorter time applies.
        context = self.context
        context.draining = True
        for connection in list(self.connections):
            connection.drain()
        if delay:
            await asyncio.sleep(delay)
        context.idle_timeout = min(context.idle_timeout, DRAIN_IDLE_TIMEOUT)
        await self._stop_listening()
        for connection in list(self.connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await context.registry.emptied()
        for connection in list(self.connections):
            connection.abort("drain")
        for tunnel in list(self.tunnels):
            tunnel.abort()
        self.origins.close()
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.sleep(0)  # the event loop reports the closed connections

    async def _stop_listening(self) -> None:
        """Close the listeners, after the connections in their queues were accepted: the system would reset these."""
        loop = asyncio.get_running_loop()
        servers, self._servers = self._servers, []
        for server, protocol in servers:
            queues = [socket.socket(fileno=os.dup(one.fileno())) for one in server.sockets]
            server.close()
            for queue in queues:
                queue.settimeout(0)  # another process may have changed that: it shares the socket
                with queue, contextlib.suppress(OSError):
                    for _ in range(BACKLOG):
                        connection, _ = queue.accept()
                        await loop.connect_accepted_socket(protocol, connection)

    def _tick(self) -> None:
        """Expire connections: cheaper than a timer per request."""
        loop = asyncio.get_running_loop()
        if self._ticking is not None:
            self._ticking.cancel()
        now = self.context.clock()
        # First, so that no defect below ends the clock.
        self._ticking = loop.call_later(_tick_seconds(self.context.timeouts), self._tick)
        for line in self.origins.tick(now):
            self.context.policy.log(line)
        for connection in [one for one in self.connections if one.deadline <= now]:
            try:
                if connection.deadline <= now:  # the end of another one may have started its request
                    connection.expire()
            except Exception as error:
                connection.abort("defect")
                context = {"message": "a connection could not be expired", "exception": error}
                loop.call_exception_handler(context)


def _permits(settings: ConcurrencySettings) -> Permits:
    loop = asyncio.get_running_loop
    return Permits(
        ConcurrencyLimit(settings, random.random),
        call_later=lambda seconds, callback: loop().call_later(seconds, callback),
    )


def _tick_seconds(timeouts: Timeouts) -> float:
    short = timeouts.header, timeouts.idle, timeouts.connect, timeouts.response, timeouts.response_body or math.inf
    return min(MAX_TICK, min(short) / 8)
