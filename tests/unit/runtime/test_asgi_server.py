"""The limits of an ASGI server for slow and hostile clients, and where it is imported."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager, suppress

import h11
import pytest

from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def application(scope, receive, send):
    headers = [(b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})


@asynccontextmanager
async def running(application=application, *, seconds=60, size=1000):
    """Run a server with these limits while inside; give the function that opens a connection to it."""
    server = AsgiServer(limits=AsgiLimits(connections=3, seconds=seconds, size=size))
    await server.bind("127.0.0.1", 0)
    await server.start(application)
    writers = []

    async def connect():
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        writers.append(writer)
        return reader, writer

    try:
        async with asyncio.timeout(20):
            yield connect
    finally:
        await server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def test_connection_beyond_the_limit_is_closed_and_others_are_served():
    async with running() as connect:
        waiting = [await connect() for _ in range(3)]
        reader, _ = await connect()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        reader, writer = waiting[-1]
        writer.write(REQUEST)
        assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST[:-2], REQUEST * 2], ids=range(4))
async def test_connection_ends_with_its_time(sent):
    """Whatever it was used for: an idle one, half a request head, a whole one, a response that was read."""
    async with running(seconds=0.05) as connect:
        reader, writer = await connect()
        writer.write(sent)
        while not reader.at_eof():
            try:
                await reader.read(1000)
            except ConnectionResetError:
                break


async def test_response_that_is_not_read_ends_with_its_time():
    ended = asyncio.Event()

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):  # the second one waits for the client
            await send({"type": "http.response.body", "body": bytes(10_000_000), "more_body": True})
        ended.set()

    async with running(application, seconds=0.05) as connect:
        _, writer = await connect()
        writer.write(REQUEST)
        await ended.wait()


@pytest.fixture
def parsed(monkeypatch):
    """Return the pieces that reach h11."""
    pieces = []
    receive_data = h11.Connection.receive_data
    monkeypatch.setattr(h11.Connection, "receive_data", lambda *given: (pieces.append(given[1]), receive_data(*given)))
    return pieces


@pytest.mark.parametrize("space", [b" ", b"\t"])
@pytest.mark.parametrize("split", [False, True])
async def test_long_run_of_spaces_never_reaches_the_parser(parsed, space, split):
    """h11 takes time quadratic in its length for a field that it refuses."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\nA:" + space * 300 + b"\0\r\n\r\n"
    async with running() as connect:
        reader, writer = await connect()
        for piece in (head[:200], head[200:]) if split else (head,):
            writer.write(piece)
            await asyncio.sleep(0.01)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    assert space * 256 not in b"".join(parsed)


async def test_shorter_runs_of_spaces_are_accepted():
    async with running() as connect:
        reader, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nA:" + b" " * 255 + b"x\r\n\r\n")
        assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("size", [999, 1000, 1001])
async def test_request_that_is_too_large_never_reaches_the_parser(parsed, size):
    head = b"GET / HTTP/1.1\r\nHost: a\r\nA: "
    head += b"x" * (size - len(head) - 4) + b"\r\n\r\n"
    async with running() as connect:
        reader, writer = await connect()
        writer.write(head)
        assert (await reader.readexactly(12)) == (b"HTTP/1.1 431" if size > 1000 else b"HTTP/1.1 200")
    assert bool(parsed) == (size <= 1000)


def test_servers_without_an_admin_listener_import_neither_uvicorn_nor_starlette():
    servers = ("gate_server", "gate_process", "prefetch_proxy_server", "prefetch_proxy_process", "master_server")
    names = ", ".join(f"headgate.runtime.{name}" for name in servers)
    code = f"import sys, {names}; print(*({{'uvicorn', 'starlette', 'click'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
