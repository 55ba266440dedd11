import asyncio
import ssl

import pytest

from headgate.errors import FetchError
from headgate.runtime.demo.connections import Client, Connection, open_tunnel
from tests.unit.runtime.demo.serving import OK, asynchronous

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def client(server):
    return Client(server.target, TLS, "127.0.0.1", "User-Agent: A/1.0\r\n")


@asynchronous
async def test_a_connection_is_used_again(server):
    sender = client(server)
    for _ in range(3):
        response = await sender.get("/page")
        assert (response.status, response.fields, response.body) == (200, [("content-length", "2")], b"ok")
    assert server.connections == 1
    assert server.heads[0] == f"GET /page HTTP/1.1\r\nHost: localhost:{server.port}\r\nUser-Agent: A/1.0\r\n\r\n"
    sender.close()
    await sender.get("/page")
    await sender.get("/page")
    assert server.connections == 3


@asynchronous
async def test_a_connection_that_the_server_closes_is_not_used_again(server):
    server.answer = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    sender = client(server)
    await sender.get("/")
    await sender.get("/")
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
    ],
)
def test_a_malformed_response_is_an_error(answer):
    @asynchronous
    async def test(server):
        server.answer = answer
        with pytest.raises(FetchError):
            await client(server).get("/")

    test()


@asynchronous
async def test_a_cancelled_request_closes_its_connection(server):
    server.answer = None
    sender = client(server)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await sender.get("/")
    server.answer = OK
    await sender.get("/")
    assert server.connections == 2
    sender.close()


@asynchronous
async def test_a_connection_opened_before_is_used(server):
    sender = client(server)
    await sender.connect()
    await sender.get("/")
    assert server.connections == 1
    sender.close()


def slow_opening(monkeypatch):
    """Have connections open only after an event."""
    may_open, open_now = asyncio.Event(), Connection.open

    async def open_later(port, source):
        await may_open.wait()
        return await open_now(port, source)

    monkeypatch.setattr(Connection, "open", open_later)
    return may_open


def test_a_connection_is_opened_although_its_request_is_given_up(monkeypatch):
    @asynchronous
    async def test(server):
        may_open, sender = slow_opening(monkeypatch), client(server)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sender.get("/")
        may_open.set()
        while not sender._idle:  # noqa: ASYNC110  # the connection is opened in the background
            await asyncio.sleep(0.01)
        assert not sender._opening
        await sender.get("/")
        assert server.connections == 1
        sender.close()

    test()


def test_a_connection_that_is_opened_after_the_client_was_closed_is_closed(monkeypatch):
    @asynchronous
    async def test(server):
        may_open, sender = slow_opening(monkeypatch), client(server)
        asking = asyncio.ensure_future(sender.get("/"))
        await asyncio.sleep(0)
        (opening,) = sender._opening

        def leave(_opening):
            """Leave in the very turn in which the connection is open."""
            asking.cancel()
            sender.close()

        opening.add_done_callback(leave)
        may_open.set()
        await asyncio.wait([asking])
        await asyncio.sleep(0.01)
        assert sender._idle == []
        assert not opening.result().is_open

    test()


def test_the_connections_opened_at_the_same_time_are_limited(monkeypatch):
    @asynchronous
    async def test(server):
        slow_opening(monkeypatch)
        sender = client(server)
        asking = [asyncio.ensure_future(sender.get("/")) for _ in range(9)]
        done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        assert [type(task.exception()) for task in done] == [FetchError]
        sender.close()
        await asyncio.wait(asking)
        assert not sender._opening
        assert server.connections == 0

    test()


@asynchronous
async def test_a_refused_tunnel_is_none(server):
    server.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nadvice"
    assert await open_tunnel(server.port, server.target, TLS, "127.0.0.1") is None
    assert server.heads == [f"CONNECT localhost:{server.port} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n"]
