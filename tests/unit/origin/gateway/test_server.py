"""A gateway as a whole: its life from the first listener to its end."""

import asyncio
import math
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config.origin_section import OriginSection
from headgate.config.tree import Bounds, Gate, Timeouts
from headgate.limit import Gatekeeper
from headgate.limit.concurrency import ConcurrencySettings
from headgate.origin import Rejections, Routes, client_address
from headgate.origin.gateway import Gateway, GatewayPolicy
from headgate.origin.gateway.client_connection import ClientConnection
from headgate.origin.gateway.context import ConnectionRegistry
from headgate.origin.gateway.exchange import UpstreamConnection
from tests.unit.origin.gateway.stub import StubTransport
from tests.unit.origin.gateway.test_client_connection import GET


def make_gateway(origin: str = "http://192.0.2.200", **settings: Any) -> Gateway:
    policy = GatewayPolicy(gatekeeper=Gatekeeper(), identify=client_address(), routes=Routes([]), reject=Rejections())
    return Gateway([OriginSection(url=origin)], policy, **settings)


async def test_a_gateway_listens_until_it_is_drained() -> None:
    gateway = make_gateway()
    assert gateway.addresses == []
    await gateway.start(port=0)
    await gateway.start(port=0)
    assert len(gateway.addresses) == 2
    await gateway.drain(0)
    assert gateway.addresses == []
    await gateway.drain(0)
    with pytest.raises(RuntimeError, match="start is not possible"):
        await gateway.start(port=0)


class BusyConnection:
    """A connection whose response does not end."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self.registry = registry
        self.client = b""
        self.deadline = math.inf
        registry.connections.add(self)

    def expire(self) -> None: ...

    def drain(self) -> None: ...

    def abort(self, reason: str) -> None:
        self.registry.leave(self)


async def test_draining_may_be_cut_short_by_draining_again() -> None:
    gateway = make_gateway()
    BusyConnection(gateway.context.registry)
    first = asyncio.ensure_future(gateway.drain(3600))
    await asyncio.sleep(0)
    assert not first.done()
    await gateway.drain(0)
    await first


async def test_a_drain_answers_what_was_queued_before_the_listener_closes() -> None:
    gateway = make_gateway("http://127.0.0.1:1")
    await gateway.start(port=0)
    with socket.create_connection(gateway.addresses[0]) as early:
        early.sendall(GET)  # the event loop has not had a turn to accept it
        draining = asyncio.ensure_future(gateway.drain(60))
        answer = await asyncio.to_thread(early.recv, 4096)
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"Connection: close\r\n" in answer
        await draining


async def test_new_connections_are_accepted_during_the_delay_of_a_drain() -> None:
    gateway = make_gateway("http://127.0.0.1:1")
    await gateway.start(port=0)
    (address,) = gateway.addresses
    with socket.create_connection(address) as kept:
        draining = asyncio.ensure_future(gateway.drain(60, delay=0.2))
        await asyncio.sleep(0.1)
        with socket.create_connection(address) as late:
            for one in (late, kept):
                one.sendall(GET)
                assert b"Connection: close\r\n" in await asyncio.to_thread(one.recv, 4096)
        await draining
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_a_connection_that_cannot_be_expired_is_aborted_and_the_clock_goes_on() -> None:
    class Defective(BusyConnection):
        def expire(self) -> None:
            raise KeyError("no such state")

    class Slow(BusyConnection):
        def expire(self) -> None:
            self.abort("")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    gateway = make_gateway()
    await gateway.start(port=0)
    for kind in (Defective, Slow, Defective):
        kind(gateway.context.registry).deadline = 0.0
    for _ in range(2):
        gateway._tick()
        assert gateway.connections == set()
        assert gateway._ticking is not None
        assert not gateway._ticking.cancelled()
    assert [type(context["exception"]) for context in reported] == [KeyError, KeyError]
    await gateway.drain(0)


@pytest.mark.parametrize(
    ("sent", "response", "seconds"),
    [
        (b"", b"", 2.0),
        (GET[:5], b"", 2.0),
        (GET, b"", 4.0),
        (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", 6.0),
    ],
    ids=["silence", "header", "response", "response_body"],
)
async def test_no_timeout_is_early(sent: bytes, response: bytes, seconds: float) -> None:
    clock = SimpleNamespace(now=1000.0)
    gateway = make_gateway(gate=Gate(timeouts=Timeouts(header=2.0, response=4.0, response_body=6.0)))
    gateway.context.clock = lambda: clock.now
    gateway._tick()
    upstream, client = UpstreamConnection(gateway.origins.pools[0]), StubTransport()
    upstream.connection_made(StubTransport())
    gateway.origins.pools[0].give_back(upstream)
    clock.now += 0.2  # after the tick
    connection = ClientConnection(gateway.context)
    connection.connection_made(client)
    connection.data_received(sent)
    if response:
        upstream.data_received(response)
        client.take()
    clock.now += seconds - 0.01
    gateway._tick()
    assert (client.written, client.aborted) == (b"", False)
    clock.now += 0.02
    gateway._tick()
    assert client.written or client.aborted
    await gateway.drain(0)


async def test_a_request_that_starts_in_a_tick_is_not_expired_in_it() -> None:
    gateway = make_gateway()
    await gateway.start(port=0)
    expired = []

    class Expiring:
        """Expires, and moves the deadline of the other connection."""

        def __init__(self) -> None:
            self.deadline = 0.0

        def expire(self) -> None:
            expired.append(self)
            for one in connections:
                one.deadline = math.inf

    connections = {Expiring(), Expiring()}
    gateway.connections = connections  # type: ignore[assignment]
    gateway._tick()
    assert len(expired) == 1
    connections.clear()
    await gateway.drain(0)


def test_a_limit_is_added_changed_and_removed_while_requests_are_in_flight() -> None:
    gateway = make_gateway()
    gateway.limit_concurrency(None)
    gateway.limit_concurrency(ConcurrencySettings(max=1))
    permits = gateway.context.permits
    assert permits is not None
    permit = permits.take()
    assert permit is not None
    gateway.limit_concurrency(ConcurrencySettings(max=2))
    assert gateway.context.permits is permits
    assert (permits.limit.limit, permits.limit.in_flight) == (2.0, 1)
    gateway.limit_concurrency(None)
    removed = gateway.context.permits
    gateway.limit_concurrency(ConcurrencySettings(max=3))
    permit.release()
    assert permits.limit.in_flight == 0
    assert removed is None
    assert gateway.context.permits is not permits


async def test_other_timeouts_and_bounds_are_in_force_for_further_requests() -> None:
    gateway = make_gateway()
    await gateway.start(port=0)
    timeouts = Timeouts(header=2.0, idle=1.0, response=4.0)
    bounds = Bounds(head_bytes=2048, max_body=5, connections=1, client_connections=7)
    gateway.context.configure(Gate(timeouts=timeouts, bounds=bounds))
    gateway.origins.configure([OriginSection(url="http://192.0.2.201")], [None])  # a new pool
    (pool,) = gateway.origins.pools
    context = gateway.context
    assert pool.settings is context
    assert (context.timeouts, context.limits.head, context.limits.body) == (timeouts, 2048, 5)
    assert context.idle_timeout == 1.0
    first, second = (ClientConnection(context) for _ in range(2))
    first.connection_made(StubTransport())
    assert first.deadline == pytest.approx(context.clock() + 2.0, abs=1.0)
    second.connection_made(StubTransport())  # the first one gives way
    assert gateway.connections == {second}
    await gateway.drain(0)
    gateway.context.configure(Gate())
    assert context.idle_timeout == 1.0  # that of a drain
