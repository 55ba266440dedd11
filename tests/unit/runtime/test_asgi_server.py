"""What slow and hostile clients may take of an ASGI server."""

import asyncio

import pytest

from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def application(scope, receive, send):
    headers = [(b"content-length", b"3")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok\n"})


def run(client, *, limits, application=application):
    """Await `client(connect)` while a server with these limits runs; `connect` opens a connection to it."""

    async def main():
        server = AsgiServer(limits=limits)
        await server.bind("127.0.0.1", 0)
        await server.start(application)
        writers = []

        async def connect():
            reader, writer = await asyncio.open_connection(*server.addresses[0])
            writers.append(writer)
            return reader, writer

        try:
            async with asyncio.timeout(20):
                await client(connect)
        finally:
            await server.close()
            for writer in writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    asyncio.run(main())


async def is_closed(reader):
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


def test_connection_beyond_the_limit_is_closed_and_others_are_served():
    async def client(connect):
        waiting = [await connect() for _ in range(3)]
        reader, _ = await connect()
        assert await is_closed(reader)
        reader, writer = waiting[-1]
        writer.write(REQUEST)
        assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"

    run(client, limits=AsgiLimits(connections=3, seconds=60))


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST[:-2], REQUEST * 2], ids=range(4))
def test_connection_ends_with_its_time(sent):
    """Whatever it was used for: an idle one, half a request head, a whole one, a response that was read."""

    async def client(connect):
        reader, writer = await connect()
        writer.write(sent)
        while not reader.at_eof():
            try:
                await reader.read(1000)
            except ConnectionResetError:
                break

    run(client, limits=AsgiLimits(connections=3, seconds=0.05))


def test_response_that_is_not_read_ends_with_its_time():
    ended = asyncio.Event()

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):  # the second one waits for the client
            await send({"type": "http.response.body", "body": bytes(10_000_000), "more_body": True})
        ended.set()

    async def client(connect):
        _, writer = await connect()
        writer.write(REQUEST)
        await ended.wait()

    run(client, limits=AsgiLimits(connections=3, seconds=0.05), application=application)
