"""The listening part: its addresses, and what it makes of a connection; the rest is seen through in tests/e2e."""

import asyncio
import socket

import pytest

from headgate.agent.proxy.asked import Asked, Opened, Refused
from headgate.agent.proxy.server import TunnelServer


async def decide(_asked: Asked) -> Opened | Refused:
    return Refused(status=403, reason="host")


def complain(reason: str, _peer: tuple[str, int]) -> Refused:
    return Refused(status=405, reason=reason)


def test_it_listens_where_it_is_told_to() -> None:
    async def check() -> None:
        server = TunnelServer(decide, complain)
        await server.start("127.0.0.1", 0)
        with socket.create_server(("127.0.0.1", 0)) as sock:
            await server.start("", 0, sock=sock.dup())
            assert server.addresses[1] == sock.getsockname()
        assert server.addresses[0][1] not in {0, server.addresses[1][1]}
        assert await server.drain(0) == 0
        assert server.addresses == []
        assert await server.drain(0) == 0

    asyncio.run(check())


def test_a_taken_address_is_an_error() -> None:
    async def check() -> None:
        server = TunnelServer(decide, complain)
        with socket.create_server(("127.0.0.1", 0)) as sock, pytest.raises(OSError, match="in use"):
            await server.start("127.0.0.1", sock.getsockname()[1])
        await server.drain(0)

    asyncio.run(check())


def test_an_ipv4_client_is_written_as_one_wherever_it_comes_in() -> None:
    asked: list[Asked] = []

    async def remember(one: Asked) -> Opened | Refused:
        asked.append(one)
        return Refused(status=403, reason="host")

    async def check() -> None:
        server = TunnelServer(remember, complain)
        sock = socket.socket(socket.AF_INET6)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        sock.listen()
        await server.start("", 0, sock=sock)
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, server.addresses[0][1])
            writer.write(b"CONNECT a:443 HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
        await server.drain(0)

    asyncio.run(check())
    assert [one.peer[0] for one in asked] == ["127.0.0.1", "::1"]


def test_a_decision_that_fails_is_reported_and_ends_its_connection_alone() -> None:
    async def fail(asked: Asked) -> Opened | Refused:
        if asked.authority == "bad:443":
            raise ZeroDivisionError
        return Refused(status=403, reason="host")

    async def check() -> None:
        reported: list[dict] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        server = TunnelServer(fail, complain)
        await server.start("127.0.0.1", 0)
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

    asyncio.run(check())
