"""The server: addresses and limits of connections; the rest is tested in tests/e2e."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from headgate.proxy import server as module
from headgate.proxy.admission.limits import client_of
from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect, TunnelTimeouts
from headgate.proxy.server import TunnelServer
from headgate.proxy.sockets import listening_socket
from tests.e2e.tunnels import until


async def decide(_asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
    return RefusedConnect(status=403, reason="host")


def refuse_early(reason: str, _peer: tuple[str, int]) -> RefusedConnect:
    return RefusedConnect(status=405, reason=reason)


async def test_listening_addresses() -> None:
    server = TunnelServer(decide, refuse_early)
    server.start(listening_socket("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server.start(sock.dup())
        assert server.addresses[1] == sock.getsockname()
    assert server.addresses[0][1] not in {0, server.addresses[1][1]}
    assert await server.drain(0) == 0
    assert server.addresses == []
    assert await server.drain(0) == 0


async def test_an_address_in_use_is_an_error() -> None:
    server = TunnelServer(decide, refuse_early)
    with socket.create_server(("127.0.0.1", 0)) as sock, pytest.raises(OSError, match="in use"):
        server.start(listening_socket("127.0.0.1", sock.getsockname()[1]))
    await server.drain(0)


def test_ipv4_clients_at_a_dual_stack_socket() -> None:
    asked: list[ConnectRequest] = []

    async def remember(one: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        asked.append(one)
        return RefusedConnect(status=403, reason="host")

    async def check() -> None:
        server = TunnelServer(remember, refuse_early)
        sock = socket.socket(socket.AF_INET6)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        sock.listen()
        server.start(sock)
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, server.addresses[0][1])
            writer.write(b"CONNECT a:443 HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
        await server.drain(0)

    asyncio.run(check())
    assert [one.peer[0] for one in asked] == ["127.0.0.1", "::1"]


async def connect(server: TunnelServer, source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*server.addresses[0], local_addr=(source, 0))


async def is_answered(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], authority: str = "a:443") -> bool:
    """Return whether a CONNECT is answered; if not, the connection is closed."""
    reader, writer = connection
    writer.write(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())
    try:
        return (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 ")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


async def test_connections_of_one_client_are_limited() -> None:
    complaints: list[tuple[str, str]] = []

    def remember(reason: str, peer: tuple[str, int]) -> RefusedConnect:
        complaints.append((reason, peer[0]))
        return refuse_early(reason, peer)

    server = TunnelServer(decide, remember, client_connections=2)
    server.start(listening_socket("127.0.0.1", 0))
    mine = [await connect(server, "127.0.0.1") for _ in range(2)]
    assert [await is_answered(one) for one in mine] == [True, True]
    too_many = await connect(server, "127.0.0.1")
    assert not await is_answered(too_many)
    too_many[1].close()
    assert complaints == [("client_connections", "127.0.0.1")]
    others = await connect(server, "127.0.0.2")
    assert await is_answered(others)
    mine[0][1].close()
    await until(lambda: len(server.connections) == 2)
    mine.append(await connect(server, "127.0.0.1"))
    assert await is_answered(mine[-1])
    assert len(complaints) == 1
    for _, writer in (*mine, others):
        writer.close()
    await until(lambda: not server.connections)
    assert server._client_connections == {}  # nothing is kept of clients that are gone
    await server.drain(0)


async def test_a_tunnel_does_not_count_as_a_connection_of_its_client() -> None:
    near, far = socket.socketpair()
    near.settimeout(0)

    async def let_through(_asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        return AcceptedConnect(socket=near, on_closed=lambda *_: None)

    server = TunnelServer(let_through, refuse_early, client_connections=1)
    server.start(listening_socket("127.0.0.1", 0))
    tunnel = await connect(server, "127.0.0.1")
    assert await is_answered(tunnel)
    second = await connect(server, "127.0.0.1")
    await until(lambda: server.connections)
    assert server._client_connections == {client_of("127.0.0.1"): 1}
    far.close()
    tunnel[1].close()
    second[1].close()
    await server.drain(0)


async def test_zero_lifts_the_limit_of_a_client() -> None:
    server = TunnelServer(decide, refuse_early, client_connections=0)
    server.start(listening_socket("127.0.0.1", 0))
    many = [await connect(server, "127.0.0.1") for _ in range(300)]
    assert all([await is_answered(one) for one in many])
    for _, writer in many:
        writer.close()
    await server.drain(0)


async def test_a_failed_decision_is_reported_and_closes_its_connection() -> None:
    async def fail(asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        if asked.authority == "bad:443":
            raise ZeroDivisionError
        return RefusedConnect(status=403, reason="host")

    reported: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    server = TunnelServer(fail, refuse_early)
    server.start(listening_socket("127.0.0.1", 0))
    good, bad = [await asyncio.open_connection(*server.addresses[0]) for _ in range(2)]
    bad[1].write(b"CONNECT bad:443 HTTP/1.1\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await bad[0].read()
    good[1].write(b"CONNECT good:443 HTTP/1.1\r\n\r\n")
    assert (await good[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]
    good[1].close()
    bad[1].close()
    await server.drain(0)


async def test_nothing_expires_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coarse clock is ahead by up to a tick: a deadline counts from there, and is compared with the real time."""
    clock = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    server = TunnelServer(decide, refuse_early, timeouts=TunnelTimeouts(idle=5.0))
    near, far = socket.socketpair()
    near.settimeout(0)
    server._tick()
    clock[0] += module._TICK / 2
    server._accepted(near, ("127.0.0.1", 1), None)
    clock[0] += 4.95
    server._tick()
    assert len(server.connections) == 1
    clock[0] += module._TICK
    server._tick()
    assert not server.connections
    far.close()
    await server.drain(0)
