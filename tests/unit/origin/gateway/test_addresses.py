"""The addresses of an origin: when they are looked up, and which of them is connected to."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.origin.gateway.addresses import TIME_TO_LIVE, OriginAddresses
from tests.unit.origin.gateway.stub import make_pool


class Resolver:
    """Stands for the system's resolver: answers with `addresses`, or fails without any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.lookups = 0
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self.getaddrinfo)

    async def getaddrinfo(self, _host: str, _port: None, **_: Any) -> list[Any]:
        self.lookups += 1
        await asyncio.sleep(0)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, 1, 6, "", (one, 0)) for one in self.addresses]


async def test_a_name_is_looked_up_once_per_time_to_live_and_an_earlier_answer_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("headgate.origin.gateway.addresses.time", clock)
    resolver, addresses = Resolver(monkeypatch), OriginAddresses("origin.example")

    async def connected(*, fails: bool = False) -> str:
        async def attempt(address: str) -> str:
            if fails:
                raise ConnectionRefusedError
            return address

        return await addresses.connect(attempt)

    for _ in range(2):
        with pytest.raises(OSError, match="cannot be looked up"):
            await connected()
        clock.now += 1.0
    resolver.addresses, resolver.lookups = ["192.0.2.1"], 0
    assert await asyncio.gather(*(connected() for _ in range(5))) == ["192.0.2.1"] * 5
    clock.now += TIME_TO_LIVE - 0.1
    assert (await connected(), resolver.lookups) == ("192.0.2.1", 1)
    clock.now += 0.2
    resolver.addresses = []
    assert (await connected(), resolver.lookups) == ("192.0.2.1", 2)
    resolver.addresses = ["192.0.2.2"]
    clock.now += TIME_TO_LIVE
    assert (await connected(), resolver.lookups) == ("192.0.2.2", 3)
    with pytest.raises(ConnectionRefusedError):
        await connected(fails=True)
    addresses.expire()
    clock.now += 0.5
    assert (await connected(), resolver.lookups) == ("192.0.2.2", 3)
    clock.now += 0.6
    assert (await connected(), resolver.lookups) == ("192.0.2.2", 4)


async def test_all_addresses_are_tried_and_the_one_that_worked_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refuses, one of the other family drops packets, one accepts; the last one is never needed."""
    Resolver(monkeypatch, "192.0.2.1", "192.0.2.3", "192.0.2.4", "2001:db8::2")
    addresses, tried = OriginAddresses("origin.example"), list[str]()

    async def attempt(address: str) -> str:
        tried.append(address)
        if address == "192.0.2.1":
            raise ConnectionRefusedError
        if address == "2001:db8::2":
            await asyncio.sleep(3600)
        return address

    assert await addresses.connect(attempt) == "192.0.2.3"
    assert tried == ["192.0.2.1", "2001:db8::2", "192.0.2.3"]
    assert await addresses.connect(attempt) == "192.0.2.3"
    assert tried[3:] == ["192.0.2.3"]


async def test_a_pool_connects_to_the_address_that_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    Resolver(monkeypatch, "127.0.0.2", "127.0.0.1")
    closed = asyncio.Event()

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    pool = make_pool(url=f"http://origin.example:{server.sockets[0].getsockname()[1]}")
    await pool.connect()
    await closed.wait()
    pool.close()
    server.close()
    with pytest.raises(OSError, match="Connect call failed"):
        await pool.connect()
