"""Attacks on a separate process: others are served, and little memory is used.

Those that send frames without end are closed; that tunnels of HTTP/1.1 read no further than one side writes is tested
in test_proxy_pressure.py.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
from hyperframe.frame import GoAwayFrame, SettingsFrame

from tests import servers
from tests.e2e.gateway_setup import PATIENCE
from tests.e2e.http2_attacks import ATTACKS, PREFACE, Attack
from tests.e2e.http2_client import WIDEST, Http2Client, http2_at
from tests.e2e.tunnels import Target, client_context, listener_context, target_running

GROWTH = 96 << 20
MOST = 64 << 20
"""Bytes after which an attack gives up."""


class Proxy:
    """A process, how large it was at first, and how large it has become."""

    def __init__(self, server: servers.Server) -> None:
        self.address = ("127.0.0.1", server.port)
        self.output = server.output
        self._memory = psutil.Process(server.process.pid).memory_info
        self._before = self._memory().rss
        self.growth = 0

    def look(self) -> None:
        """See how large it is now."""
        self.growth = max(self.growth, self._memory().rss - self._before)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Proxy]:
    """Run a proxy."""
    port = servers.free_port()
    listener_context(folder)
    words = [str(port), folder / "cert.pem", folder / "key.pem"]
    with servers.started([sys.executable, "-m", "tests.e2e.http2_process", *words], port, folder) as server:
        yield Proxy(server)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with running(tmp_path) as proxy:
        yield proxy


class Bystander:
    """Is served, over and over."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self._proxy = proxy
        self._port = port
        self._served = asyncio.Event()
        self._standing = asyncio.create_task(self._stand())

    async def served(self) -> None:
        """Wait until it was served once more."""
        self._served.clear()
        waiting = asyncio.create_task(self._served.wait())
        await asyncio.wait({waiting, self._standing}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        waiting.cancel()
        assert self._served.is_set()

    async def close(self) -> None:
        """Stop."""
        self._standing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._standing

    async def _stand(self) -> None:
        async with http2_at(self._proxy.address, client_context()) as client:
            for number in itertools.count():
                if number % 10 == 0:
                    tunnel = await client.open(self._port)
                await client.send_data(tunnel, b"hello!", end=number % 10 == 9)
                assert await client.receive(tunnel, 6) == b"hello!"
                self._proxy.look()
                self._served.set()
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(proxy: Proxy, port: int) -> AsyncIterator[Bystander]:
    """See that the process grows by little, and that a bystander is served before, meanwhile and afterwards."""
    bystander = Bystander(proxy, port)
    try:
        await bystander.served()
        yield bystander
        for _ in range(3):
            await bystander.served()
        assert proxy.growth < GROWTH
        assert proxy.output() == ""
    finally:
        await bystander.close()


async def answer_to(attack: Attack, proxy: Proxy, port: int) -> GoAwayFrame:
    """Attack until the connection is closed; return the last GOAWAY."""
    async with http2_at(proxy.address, client_context(), greet=False) as client:
        client.send(PREFACE + SettingsFrame(0).serialize())
        pieces, sent = attack.bytes(port), 0
        while not client.is_over and not client.goaways and sent < MOST:
            batch = b"".join(islice(pieces, 50))
            sent += len(batch)
            client.send(batch)
            with contextlib.suppress(OSError):
                await client.writer.drain()
            await asyncio.sleep(0)
        return await client.final_goaway()


async def test_an_attack_is_closed(proxy: Proxy) -> None:
    async with target_running() as port, watched(proxy, port) as bystander:
        for name, attack in ATTACKS.items():
            goaway = await answer_to(attack, proxy, port)
            assert goaway.error_code in attack.codes, (name, goaway)
            assert attack.word in goaway.additional_data.decode(), name
            await bystander.served()


async def never_reads(target: Target) -> None:
    target.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    target.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def pours(target: Target) -> None:
    # What the system keeps for a target is not what is looked at.
    target.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    while True:
        target.writer.write(bytes(1 << 16))
        await target.writer.drain()


async def many(proxy: Proxy, count: int, stack: AsyncExitStack, **settings: Any) -> list[Http2Client]:
    """Connect many clients."""
    tls = client_context()
    connecting = [http2_at(proxy.address, tls, **settings) for _ in range(count)]
    return [await stack.enter_async_context(client) for client in connecting]


async def test_targets_that_do_not_read_do_not_affect_other_clients(proxy: Proxy) -> None:
    """Each tunnel receives repeatedly what its windows allow, and none of it is forwarded."""

    async def fill(client: Http2Client, port: int) -> None:
        tunnels = [await client.open(port) for _ in range(32)]
        while client.window and any(tunnel.window for tunnel in tunnels):
            for tunnel in tunnels:
                await client.send_data(tunnel, bytes(min(tunnel.window, client.window)))
            await client.ping()

    async with (
        target_running(never_reads) as stuck,
        target_running() as port,
        watched(proxy, port) as bystander,
        AsyncExitStack() as stack,
    ):
        clients = await many(proxy, 4, stack)
        await asyncio.gather(*(fill(client, stuck) for client in clients))
        await bystander.served()


async def test_clients_that_do_not_read_do_not_affect_other_clients(proxy: Proxy) -> None:
    """Each has windows as wide as there are, and targets that pour."""
    async with (
        target_running(pours) as pouring,
        target_running() as port,
        watched(proxy, port) as bystander,
        AsyncExitStack() as stack,
    ):
        clients = await many(proxy, 50, stack, settings={SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST})
        for client in clients:
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(4):
                client.ask(pouring)
        for _ in range(30):
            await bystander.served()


async def test_windows_of_one_byte(proxy: Proxy) -> None:
    """Each byte is allowed for by itself, in many tunnels."""
    async with (
        target_running(pours) as pouring,
        target_running() as port,
        watched(proxy, port) as bystander,
        http2_at(proxy.address, client_context(), settings={SettingsFrame.INITIAL_WINDOW_SIZE: 1}) as client,
    ):
        tunnels = [await client.open(pouring) for _ in range(100)]
        for _ in range(10):
            await bystander.served()
        assert all(tunnel.received for tunnel in tunnels)


async def test_unfinished_handshakes(proxy: Proxy) -> None:
    hello = ssl.MemoryBIO()
    beginning = client_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        beginning.do_handshake()
    whole = hello.read()
    async with target_running() as port, watched(proxy, port) as bystander:
        with contextlib.ExitStack() as stack:
            for number in range(600):
                sock = stack.enter_context(socket.create_connection(proxy.address))
                sock.send(whole[: len(whole) * (number % 3) // 2])  # none, half or all of it
            await bystander.served()
