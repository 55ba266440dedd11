"""The gateway as a whole: its listeners, its clock, and how it stops."""

import asyncio
import contextlib
import math
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from headgate.config.origin_section import OriginSection
from headgate.config.tree import Bounds, Timeouts
from headgate.http.h1 import RequestLimits
from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.gateway.buffer import Buffers
from headgate.origin.gateway.client_connection import ClientConnection
from headgate.origin.gateway.context import ConnectionRegistry, GatewayContext
from headgate.origin.gateway.exchange import UpstreamPool
from headgate.origin.gateway.listener import PLAIN, ListenerSettings
from headgate.origin.gateway.origins import Origins
from headgate.origin.gateway.policy import GatewayPolicy
from headgate.origin.gateway.record import GatewayCounters, RequestRecord
from headgate.origin.gateway.responses import ALLOW
from headgate.origin.gateway.states import ClientState
from headgate.origin.permits import Permits

MAX_TICK = 0.25
DRAIN_IDLE_TIMEOUT = 1.0
"""Seconds that a connection is kept in a drain for a request that may be on its way."""
BACKLOG = 1024


class Gateway:
    """A reverse proxy that asks a gatekeeper about every request.

    `origins` lists the origins, and `policy` has the rules for requests. `allow` is the value of
    Allow in a response to a method that is never served. `concurrency` limits the requests in flight at the origin.
    `buffer_requests` and `buffer_response` are the keys of `Gate`. `observe` receives the record of each
    request at its end.

    Runs on the event loop that `start` is called on, and on no other. Raises `ConfigurationError` for files of an
    origin that cannot be used.
    """

    def __init__(
        self,
        origins: Sequence[OriginSection],
        policy: GatewayPolicy,
        *,
        timeouts: Timeouts | None = None,
        bounds: Bounds | None = None,
        buffer_requests: bool = True,
        buffer_response: int = 1 << 20,
        allow: bytes = ALLOW,
        concurrency: ConcurrencySettings | None = None,
        observe: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        timeouts, bounds = timeouts or Timeouts(), bounds or Bounds()
        limits = _limits(bounds)
        counters, clock = GatewayCounters(), time.monotonic
        make_pool = partial(UpstreamPool, timeouts=timeouts, limits=limits, counters=counters, clock=clock)
        self.origins = Origins(origins, make_pool)
        """The origins and the connections to them."""
        self.buffers = Buffers(bounds, counters, policy.log, requests=buffer_requests, response=buffer_response)
        """The buffers of slow clients, whose settings may be changed at any time."""
        self._context = GatewayContext(
            policy,
            self.origins.balancer,
            ConnectionRegistry(limit=bounds.connections, client_limit=bounds.client_connections),
            timeouts=timeouts,
            limits=limits,
            counters=counters,
            clock=clock,
            buffers=self.buffers,
            allow=allow,
            permits=_permits(concurrency) if concurrency is not None else None,
            observe=observe,
        )
        self.connections = self._context.registry.connections
        """The open connections of clients."""
        self.tunnels = self._context.registry.tunnels
        """The open tunnels."""
        self.counters = self._context.counters
        """The counters since the start."""
        self._servers: list[tuple[asyncio.Server, Callable[[], ClientConnection]]] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._tick_seconds = _tick_seconds(timeouts)

    def limit(self, timeouts: Timeouts, bounds: Bounds) -> None:
        """Put other timeouts, and bounds but those of buffers, in force for further requests and connections."""
        context, limits = self._context, _limits(bounds)
        context.timeouts, context.limits = timeouts, limits
        context.idle_timeout = DRAIN_IDLE_TIMEOUT if context.draining else timeouts.idle
        context.registry.set_limits(limit=bounds.connections, client_limit=bounds.client_connections)
        self.origins.limit(timeouts, limits)
        self.buffers.limit(bounds.max_body)
        self._tick_seconds = _tick_seconds(timeouts)

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

    @property
    def policy(self) -> GatewayPolicy:
        """The policy for requests. It may be replaced (by `msgspec.structs.replace`) at any time."""
        return self._context.policy

    @policy.setter
    def policy(self, policy: GatewayPolicy) -> None:
        self._context.policy = policy

    @property
    def observe(self) -> Callable[[RequestRecord], None] | None:
        """Receives the record of each request at its end. It may be replaced at any time."""
        return self._context.observe

    @observe.setter
    def observe(self, observe: Callable[[RequestRecord], None] | None) -> None:
        self._context.observe = observe

    @property
    def permits(self) -> Permits | None:
        """The permits of requests in flight; None without a concurrency limit."""
        return self._context.permits

    def limit_concurrency(self, settings: ConcurrencySettings | None) -> None:
        """Put other settings of the concurrency limit in force; the learned limit and the waiting requests stay."""
        context = self._context
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
        reuse_port: bool = False,
        sock: socket.socket | None = None,
    ) -> None:
        """Listen at `host` and `port` (0: one that is free), or on `sock`; may be called again for another listener.

        `sock` may be a unix socket. Raises `OSError` when it cannot listen there, and `RuntimeError` once `drain` was
        called.
        """
        if self._context.draining:
            raise RuntimeError("gateway: start is not possible once it drains")
        loop = asyncio.get_running_loop()
        self._tick()

        def protocol() -> ClientConnection:
            return ClientConnection(self._context, listener)

        if sock is not None and sock.family == socket.AF_UNIX:
            server: asyncio.Server = await loop.create_unix_server(protocol, sock=sock, backlog=BACKLOG)
        elif sock is not None:
            server = await loop.create_server(protocol, sock=sock, backlog=BACKLOG)
        else:
            server = await loop.create_server(protocol, host, port, backlog=BACKLOG, reuse_port=reuse_port or None)
        self._servers.append((server, protocol))

    async def drain(self, seconds: float, *, delay: float = 0.0) -> None:
        """Stop: let requests under way finish for at most `seconds`, then close everything.

        New connections are accepted for `delay` seconds more. From the beginning, each response ends its connection and
        says so; a connection without a request is closed a moment after the listeners, as a request may be on its way.
        """
        # A second drain with less time: the shorter time applies.
        context = self._context
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
                with queue, contextlib.suppress(OSError):
                    for _ in range(BACKLOG):
                        connection, _ = queue.accept()
                        await loop.connect_accepted_socket(protocol, connection)

    def _tick(self) -> None:
        """Expire connections: cheaper than a timer per request."""
        loop = asyncio.get_running_loop()
        if self._ticking is not None:
            self._ticking.cancel()
        now = self._context.clock()
        # First, so that no defect below ends the clock.
        self._ticking = loop.call_later(self._tick_seconds, self._tick)
        for line in self.origins.tick(now):
            self._context.policy.log(line)
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


def _limits(bounds: Bounds) -> RequestLimits:
    return RequestLimits(bounds.target_bytes, bounds.head_bytes, bounds.max_body, bounds.head_fields)


def _tick_seconds(timeouts: Timeouts) -> float:
    short = timeouts.header, timeouts.idle, timeouts.connect, timeouts.response, timeouts.response_body or math.inf
    return min(MAX_TICK, min(short) / 8)
