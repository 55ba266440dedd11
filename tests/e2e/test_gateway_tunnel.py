"""WebSocket goes through a tunnel, after the decision; nothing else does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from headgate.origin.gateway import Gateway
from headgate.origin.gateway.tunnel import reset_on_close
from tests.e2e.gateway_setup import agent_at, gateway_running, served, until

pytestmark = pytest.mark.usefixtures("run")

UPGRADE = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\nX-Kept: 1\r\n\r\n"


@asynccontextmanager
async def websocket_origin(**settings: object) -> AsyncIterator[Gateway]:
    async def repeat(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(repeat, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with gateway_running(port, **settings) as gateway:
            yield gateway


def url(gateway: Gateway) -> str:
    return f"ws://127.0.0.1:{gateway.addresses[0][1]}/chat"


async def test_websocket_messages_pass_both_ways() -> None:
    async with websocket_origin() as gateway:
        async with connect(url(gateway), proxy=None) as one, connect(url(gateway), proxy=None) as two:
            for websocket in (one, two):
                for message in ("hello", b"\x00\xff" * 100_000, ""):
                    await websocket.send(message)
                    assert await websocket.recv() == message
            assert len(gateway.tunnels) == 2
            assert gateway.connections == set()
        await until(lambda: not gateway.tunnels)


@pytest.mark.parametrize("end", ["half-close", "close", "reset"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_client_that_has_left_leaves_no_tunnel(when: str, end: str) -> None:
    """The origin of the tunnel says nothing, and takes no notice of the end."""
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if when == "before":
            await left.wait()
        writer.write(SWITCH)
        await asyncio.Event().wait()

    async with served(silent) as (origin, gateway), agent_at(gateway) as agent:
        await agent.send(UPGRADE)
        await until(lambda: b"\r\n\r\n" in origin.received)
        if when == "after":
            await agent.reader.readuntil(b"\r\n\r\n")
        if end == "half-close":
            agent.writer.write_eof()
        else:
            if end == "reset":
                reset_on_close(agent.writer.transport)
            agent.writer.close()
        await asyncio.sleep(0.05)
        left.set()
        await until(lambda: not gateway.tunnels and not gateway.connections)
