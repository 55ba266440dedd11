"""Slow clients before a real gunicorn with two synchronous workers, which serves one request at a time with each."""

import asyncio
import hashlib
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from headgate.origin.gateway import Gateway
from tests.e2e.buffered_app import LARGE
from tests.e2e.gateway_setup import PATIENCE, Agent, agent_at, gateway_running
from tests.e2e.test_gateway_slow import small_listener
from tests.servers import free_port

pytestmark = pytest.mark.usefixtures("run")

HERE = Path(__file__).parent
BODY = b"0123456789" * 20_000  # the last part of it is in a file
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(BODY)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"


@asynccontextmanager
async def slow_reader(port: int) -> AsyncIterator[Agent]:
    """Connect a client that reads with a small window, and only when it is asked to."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    async with AsyncExitStack() as stack:
        reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
        stack.callback(writer.close)
        yield Agent(reader, writer)


async def crowd(port: int, number: int, ask: Callable[[Gateway], Awaitable[None]]) -> None:
    """Call `ask` while as many slow uploaders and slow readers are at the gate; then let them finish."""
    async with gateway_running(port, buffer_response=65_536) as gateway, AsyncExitStack() as stack:
        uploaders = [await stack.enter_async_context(agent_at(gateway)) for _ in range(number)]
        for agent in uploaders:
            await agent.send(POST + BODY[:-1])
        small = await small_listener(gateway, None)
        readers = [await stack.enter_async_context(slow_reader(small)) for _ in range(number)]
        for agent in readers:
            await agent.send(GET_LARGE)
        async with asyncio.timeout(10 * PATIENCE):
            while gateway.origins.pools[0].connection_states["active"]:  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.01)
        await ask(gateway)
        assert not any(agent.reader._buffer for agent in uploaders)
        for agent in uploaders:
            await agent.send(BODY[-1:])
            assert (await agent.response()).body == hashlib.sha256(BODY).hexdigest().encode()
        for agent in readers:
            agent.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            assert (await agent.response()).body == LARGE
        assert gateway.context.counters.buffers_in_files == {"request": number, "response": number}


@pytest.fixture
def gunicorn(start) -> int:
    """Run gunicorn, and return its port."""
    port = free_port()
    options = ["-w", "2", "-b", f"127.0.0.1:{port}", "--backlog", "2048", "--chdir", str(HERE), "buffered_app:app"]
    start([sys.executable, "-m", "gunicorn", *options], port)
    return port


async def test_others_are_answered_while_clients_are_slow(gunicorn: int) -> None:
    async def ask(gateway: Gateway) -> None:
        async with agent_at(gateway) as agent:
            assert [(await agent.ask(GET)).status for _ in range(20)] == [200] * 20

    await crowd(gunicorn, 12, ask)


@pytest.mark.deep
async def test_two_hundred_slow_clients(gunicorn: int) -> None:
    async def median(gateway: Gateway) -> float:
        times = []
        async with agent_at(gateway) as agent:
            for _ in range(300):
                begin = time.perf_counter()
                assert (await agent.ask(GET)).status == 200
                times.append(time.perf_counter() - begin)
        return 1000 * statistics.median(times)

    async with gateway_running(gunicorn) as gateway:
        undisturbed = await median(gateway)

    async def ask(gateway: Gateway) -> None:
        print(f"median {await median(gateway):.2f} ms, undisturbed {undisturbed:.2f} ms")

    await crowd(gunicorn, 200, ask)
