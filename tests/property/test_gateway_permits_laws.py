"""Permits are never lost: whatever clients, origins, timeouts and reloads do, in any order.

Connections and exchanges are the real ones, on transports without sockets; the machine is their event loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.limit.concurrency import ConcurrencyLimit, ConcurrencySettings
from headgate.origin.gateway.client_connection import ClientConnection
from headgate.origin.gateway.exchange import ProxiedExchange, UpstreamConnection, UpstreamPool, UpstreamState
from headgate.origin.gateway.states import ClientState
from headgate.origin.permits import Permits
from tests.unit.origin.gateway.stub import StubTimers, StubTransport, make_context, make_pool

END = b"Host: a\r\n\r\n"
GET = b"GET / HTTP/1.1\r\n" + END
POST = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n" + END
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + END
UPGRADE = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + END
SENT = [
    GET, GET * 3, GET[:9], GET[9:], GET.replace(b"GET", b"HEAD"), GET.replace(b"1.1", b"1.0"), POST, POST + b"hello",
    POST + b"hel", b"lo", b"hello" + GET, CHUNKED, CHUNKED + b"2\r\nhi\r\n0\r\n\r\n", b"2\r\nhi\r\n", b"0\r\n\r\n",
    b"zz\r\n", POST[:-2] + b"Expect: 100-continue\r\n\r\n", UPGRADE, b"\x00\r\n\r\n", b"x" * 70_000,
]  # fmt: skip
HEAD = b"HTTP/1.1 200 OK\r\nDate: d\r\n"
RECEIVED = [
    HEAD + b"Content-Length: 2\r\n\r\nhi", HEAD + b"Content-Length: 2\r\n\r\nh", b"i", HEAD[:9], HEAD[9:],
    HEAD + b"Content-Type: text/event-stream\r\n\r\n", b"data: 1\n\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    b"1\r\nh\r\n", b"0\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\nDate: d\r\n\r\n",
    b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"garbage\r\n\r\n", b"HTTP/1.1 99",
    HEAD + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi", HEAD + b"\r\n",
]  # fmt: skip
UPGRADED = RECEIVED[12]
STREAM = RECEIVED[5]
MAX_CLIENTS = 5
ANSWERING = {ClientState.RESPONDING, ClientState.DELAYED, ClientState.QUEUED}
SETTINGS = st.builds(
    ConcurrencySettings,
    max=st.sampled_from([1, 2, 3, "learned"]),
    queue=st.integers(0, 4),
    mode=st.sampled_from(["enforce", "enforce", "monitor", "off"]),
    healthy_latency=st.sampled_from([0.05, 1.0]),
)


class Gateway(RuleBasedStateMachine):
    """A gateway whose clients and origin do what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clients: list[tuple[ClientConnection, StubTransport]] = []
        self.lost: set[StubTransport] = set()
        self.origins: dict[UpstreamConnection, StubTransport] = {}
        self.connecting: list[asyncio.Future[None]] = []
        self.timers = StubTimers()
        self.now = 1000.0
        self.accepts = True  # whether the origin accepts connections at once

    @initialize(limit=SETTINGS)
    def start(self, limit: ConcurrencySettings) -> None:
        core = ConcurrencyLimit(limit, lambda: 0.5)
        self.permits = Permits(core, clock=lambda: self.now, call_later=self.timers.call_later)
        self.pools = [make_pool(lambda: self.now, url=url, max_in_flight=2) for url in ("http://a", "http://b")]
        self.context = make_context(None, *self.pools, permits=self.permits)
        for pool in self.pools:
            pool.connect = partial(self.connect, pool)  # type: ignore[method-assign]  # no socket

    async def connect(self, pool: UpstreamPool) -> UpstreamConnection:  # as in the pool
        if not self.accepts:
            waiting: asyncio.Future[None] = self.loop.create_future()
            self.connecting.append(waiting)
            await waiting
        upstream = UpstreamConnection(pool)
        transport = self.origins[upstream] = StubTransport()
        upstream.connection_made(transport)
        return upstream

    def run(self, act: Callable[..., Any], *arguments: Any) -> None:
        """Call a function within the event loop, and then what it has scheduled there."""

        async def turn() -> None:
            act(*arguments)
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turn())

    def choose(self, data: st.DataObject, listed: list[Any]) -> Any:
        return listed[data.draw(st.integers(0, len(listed) - 1))]

    def open_clients(self) -> list[tuple[ClientConnection, StubTransport]]:
        return [pair for pair in self.clients if pair[1] not in self.lost]

    def open_origins(self) -> list[tuple[UpstreamConnection, StubTransport]]:
        return [pair for pair in self.origins.items() if pair[1] not in self.lost]

    def registered(self) -> list[ClientConnection]:
        """Return the connections that are not closed, in the order of their start: that of a set is not repeatable."""
        return [connection for connection, _ in self.clients if connection in self.context.registry.connections]

    # Clients.

    @precondition(lambda self: len(self.open_clients()) < MAX_CLIENTS)
    @rule(data=st.sampled_from([GET, GET * 3, POST, POST + b"hello", CHUNKED, UPGRADE]))
    def connect_client(self, data: bytes) -> None:
        transport = StubTransport()
        connection = ClientConnection(self.context)
        self.clients.append((connection, transport))
        self.run(connection.connection_made, transport)
        if not transport.is_closing():
            self.run(connection.data_received, data)

    @precondition(lambda self: self.open_clients())
    @rule(data=st.data(), event=st.sampled_from(["send", "send", "send", "pause", "resume", "eof", "lose", "expire"]))
    def move_client(self, data: st.DataObject, event: str) -> None:
        connection, transport = self.choose(data, self.open_clients())
        is_tunnel = transport.protocol is not None
        if event == "lose" or (event == "eof" and is_tunnel):
            self.lose(connection, transport)
        elif is_tunnel or transport.is_closing():
            return
        elif event == "send":
            self.run(connection.data_received, data.draw(st.sampled_from(SENT)))
        elif event == "pause":
            self.run(connection.pause_writing)
        elif event == "resume":
            self.run(connection.resume_writing)
        elif event == "expire":
            self.run(connection.expire)
        elif not self.loop.run_until_complete(self.call(connection.eof_received)):
            transport.close()

    async def call(self, act: Callable[[], bool]) -> bool:
        return act()

    def lose(self, protocol: Any, transport: StubTransport) -> None:
        self.lost.add(transport)
        transport.closed = True
        self.run((transport.protocol or protocol).connection_lost, None)

    @rule()
    def lose_closed(self) -> None:
        """The event loop reports the connections that were closed."""
        for protocol, transport in self.open_clients() + self.open_origins():
            if transport.is_closing():
                self.lose(protocol, transport)

    # The origin.

    @rule(at_once=st.booleans())
    def accept_at_once(self, at_once: bool) -> None:  # hypothesis passes keywords
        self.accepts = at_once

    @precondition(lambda self: self.connecting)
    @rule(error=st.sampled_from([None, None, None, ConnectionRefusedError(), TimeoutError()]))
    def accept(self, error: Exception | None) -> None:
        waiting = self.connecting.pop(0)

        def act() -> None:
            if waiting.cancelled():
                return
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.run(act)

    @precondition(lambda self: self.open_origins())
    @rule(data=st.data(), event=st.sampled_from(["send", "send", "send", "send", "lose", "pause", "resume", "buffer"]))
    def move_origin(self, data: st.DataObject, event: str) -> None:
        upstream, transport = self.choose(data, self.open_origins())
        if event == "lose":
            self.lose(upstream, transport)
        elif transport.is_closing() or transport.protocol is not None:
            return
        elif event == "send":
            self.send_response(data, upstream, transport)
        elif event == "buffer":
            transport.buffered = 0 if transport.buffered else 10
        elif event == "pause":
            self.run(upstream.pause_writing)
        else:
            self.run(upstream.resume_writing)

    def send_response(self, data: st.DataObject, upstream: UpstreamConnection, transport: StubTransport) -> None:
        if upstream.state is UpstreamState.WAITING and b"websocket" in transport.take():
            self.run(upstream.data_received, data.draw(st.sampled_from([UPGRADED, UPGRADED, STREAM])))
        elif upstream.state is not UpstreamState.IDLE:
            self.run(upstream.data_received, data.draw(st.sampled_from(RECEIVED)))

    # The gateway.

    @rule(seconds=st.sampled_from([0.1, 0.1, 2.0, 61.0]))
    def tick(self, seconds: float) -> None:
        def act() -> None:
            self.now = self.context.now = self.now + seconds
            for pool in self.pools:
                pool.tick(self.now)
            self.timers.fire()
            for connection in self.registered():
                if connection.deadline <= self.now:
                    connection.expire()

        self.run(act)

    @rule(limit=SETTINGS)
    def reload(self, limit: ConcurrencySettings) -> None:
        self.run(self.permits.reconfigure, limit)

    @rule()
    def drain(self) -> None:
        if not self.context.draining:
            self.context.draining = True
            for connection in self.registered():
                self.run(connection.drain)

    # The laws.

    @invariant()
    def a_request_in_flight_has_an_exchange(self) -> None:
        held = 0
        for connection, _ in self.clients:
            exchange = connection.exchange
            if isinstance(exchange, ProxiedExchange) and exchange.permit is not None:
                held += exchange.permit._is_held
        assert self.permits.limit.in_flight == held

    @invariant()
    def a_request_counts_at_the_origin_that_has_it(self) -> None:
        exchanges = [connection.exchange for connection, _ in self.clients]
        counted = [one._counted for one in exchanges if isinstance(one, ProxiedExchange)]
        for pool in getattr(self, "pools", ()):
            assert pool.health.in_flight == sum(one is pool.health for one in counted) <= 2

    @invariant()
    def a_queued_request_has_a_client_that_waits(self) -> None:
        waiting = sum(connection.state is ClientState.QUEUED for connection, _ in self.clients)
        assert self.permits.limit.state.queued == waiting <= 4

    @invariant()
    def a_request_is_reported_once(self) -> None:
        under_way = [connection.record for connection, _ in self.clients if connection.record is not None]
        records = [*self.context.records, *under_way]
        assert len({id(record) for record in records}) == len(records)
        assert all(record.end for record in self.context.records)
        assert len(under_way) == sum(connection.state in ANSWERING for connection, _ in self.clients)

    def teardown(self) -> None:
        try:
            if hasattr(self, "permits"):
                for protocol, transport in self.open_clients():
                    self.lose(protocol, transport)
                assert (self.permits.limit.in_flight, self.permits.limit.state.queued) == (0, 0)
                assert [pool.health.in_flight for pool in self.pools] == [0, 0]
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.run(lambda: None)
            self.loop.close()


TestPermitsAreNeverLost = Gateway.TestCase
TestPermitsAreNeverLost.settings = settings(stateful_step_count=60)
