import asyncio

import pytest

from headgate.config.tree import Bounds, Gate
from headgate.origin.gateway.context import ClientCounts, ConnectionRegistry
from headgate.origin.gateway.forwarding import ClientInfo
from headgate.origin.gateway.settings import GatewaySettings
from headgate.origin.identify import client_address
from tests.unit.origin.gateway.stub import StubTransport


def make_registry(limit: int, client_limit: int) -> ConnectionRegistry:
    bounds = Bounds(connections=limit, client_connections=client_limit)
    return ConnectionRegistry(GatewaySettings(Gate(bounds=bounds)))


class Connection:
    """As much of a client's connection as the registry uses."""

    def __init__(self, *, gives_way: bool = True) -> None:
        self.client = b""
        self.deadline = 0.0
        self.gives_way = gives_way

    def expire(self) -> None: ...

    def drain(self) -> None: ...

    def abort(self, reason: str) -> None: ...

    def give_way(self) -> bool:
        return self.gives_way


def client(address: str = "192.0.2.1", *, trusted: bool = False) -> ClientInfo:
    return ClientInfo(address, proxies=client_address([address] if trusted else []), tls=False)


def test_ipv6_addresses_count_by_network_and_mapped_ones_as_ipv4() -> None:
    counts = ClientCounts()
    assert counts.enter("2001:db8::1", 1)
    assert counts.enter("2001:db8::ffff:2", 1) == b""
    assert counts.enter("2001:db8:0:1::1", 1)
    assert counts.enter("192.0.2.1", 1)
    assert counts.enter("::ffff:192.0.2.1", 1) == b""


def test_a_client_without_connections_takes_no_memory() -> None:
    counts = ClientCounts()
    entered = [counts.enter(f"192.0.2.{number % 100}", 0) for number in range(300)]
    assert all(entered)
    for one in entered:
        counts.leave(one)
        counts.leave(b"")
    assert counts._open == {}


def test_a_connection_over_a_limit_is_not_registered() -> None:
    registry = make_registry(limit=3, client_limit=2)
    assert [registry.enter(Connection(), client()) for _ in range(3)] == ["", "", "client_limit"]
    assert registry.enter(Connection(), client("192.0.2.2")) == ""
    assert registry.enter(Connection(), client("192.0.2.3")) == "limit"
    assert len(registry.connections) == 3


def test_at_the_limit_the_connection_that_is_idle_for_longest_gives_way() -> None:
    registry = make_registry(limit=4, client_limit=0)
    busy, sending, old, new = every = Connection(), Connection(gives_way=False), Connection(), Connection()
    for one in every:
        registry.enter(one, client())
    for one, idle in (
        (old, True),
        (busy, True),
        (sending, True),
        (new, True),
        (old, False),
        (busy, False),
        (old, True),
    ):
        registry.idle.pop(one, None)
        if idle:
            registry.idle[one] = None
    remaining = []
    for _ in range(3):
        entered = registry.enter(Connection(), client())
        remaining.append((entered, registry.connections & {*every}))
    assert remaining == [("", {busy, sending, old}), ("", {busy, sending}), ("limit", {busy, sending})]


@pytest.mark.parametrize("info", [client("", trusted=False), client(trusted=True)])
def test_unix_sockets_and_trusted_proxies_have_no_limit_of_their_own(info: ClientInfo) -> None:
    registry = make_registry(limit=9, client_limit=1)
    assert [registry.enter(Connection(), info) for _ in range(3)] == ["", "", ""]


def test_a_tunnel_is_counted_under_its_client_until_it_is_closed() -> None:
    registry, connection = make_registry(limit=2, client_limit=1), Connection()
    assert registry.enter(connection, client()) == ""
    tunnel = registry.open_tunnel(connection, StubTransport(), StubTransport())
    registry.leave(connection)  # as the connection's transport closes later
    assert (registry.connections, registry.tunnels) == (set(), {tunnel})
    tunnel.client_end.connection_lost(None)
    assert registry.enter(Connection(), client()) == "client_limit"
    tunnel.origin_end.connection_lost(None)
    assert registry.tunnels == set()
    assert registry.enter(Connection(), client()) == ""


async def test_emptied_waits_for_connections_and_tunnels() -> None:
    registry, connection = make_registry(limit=2, client_limit=0), Connection()
    await registry.emptied()
    registry.enter(connection, client())
    waiting = asyncio.ensure_future(registry.emptied())
    await asyncio.sleep(0)
    tunnel = registry.open_tunnel(connection, StubTransport(), StubTransport())
    registry.leave(connection)
    await asyncio.sleep(0)
    assert not waiting.done()
    tunnel.client_end.connection_lost(None)
    tunnel.origin_end.connection_lost(None)
    await waiting
