"""Origins that break off, violate HTTP, pause or cannot be reached: the client gets an error, the gateway goes on."""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from email.utils import parsedate_to_datetime

import h11
import pytest

from headgate.config.tree import Bounds, Timeouts
from headgate.origin.gateway.tunnel import reset_on_close
from tests import servers
from tests.e2e.scripted import (
    Reply,
    Script,
    agent_at,
    echo,
    gateway_running,
    origin_running,
    read_request,
    says,
    served,
    until,
)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"


def is_problem(reply: Reply, status: int) -> bool:
    document = json.loads(reply.body)
    assert document["status"] == status
    assert document["detail"]
    return reply.status == status and reply.field(b"content-type") == b"application/problem+json"


def test_an_origin_that_is_down_is_502_until_it_is_up(run: Callable) -> None:
    async def check() -> None:
        async with gateway_running(servers.free_port()) as gateway, agent_at(gateway) as agent:
            for request in (GET, POST, GET):
                assert is_problem(await agent.ask(request), 502)
            async with origin_running() as origin:
                gateway.pool.port = origin.port
                assert (await agent.ask(GET)).status == 200

    run(check())


def test_an_origin_that_does_not_accept_is_504(run: Callable) -> None:
    async def check(port: int) -> None:
        async with gateway_running(port, timeouts=Timeouts(connect=0.05)) as gateway, agent_at(gateway) as agent:
            assert is_problem(await agent.ask(GET), 504)

    with ExitStack() as open_sockets:
        full = open_sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # Once the queue is full, the system drops further attempts without an answer.
        for _ in range(4):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        run(check(full.getsockname()[1]))


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nConte"])
def test_an_origin_that_is_silent_is_504(beginning: bytes, run: Callable) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(beginning)
        await reader.read()

    async def check() -> None:
        async with served(silent, timeouts=Timeouts(response=0.1)) as (origin, gateway), agent_at(gateway) as agent:
            for request in (GET, POST):
                assert is_problem(await agent.ask(request), 504)
            for connection in origin.connections:
                await until(connection.ended.is_set)

    run(check())


def test_an_origin_that_pauses_within_its_response_times_out(run: Callable) -> None:
    async def sleepy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await reader.read()

    async def check() -> None:
        async with served(sleepy, timeouts=Timeouts(response_body=0.1)) as (_, gateway), agent_at(gateway) as agent:
            await agent.send(GET)
            assert (await agent.rest()).endswith(b"hello")

    run(check())


INCOMPLETE = {
    "an unasked switch": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X: abcdefgh\r\n" * 6000,
    "a head too long": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "interim and nothing": b"HTTP/1.1 103 Early Hints\r\n\r\n",
}


def test_a_response_without_a_usable_head_is_502(run: Callable) -> None:
    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            for name, response in INCOMPLETE.items():
                origin.script = says(response, close=True)
                for _ in range(2):
                    assert is_problem(await agent.ask(GET), 502), name
            origin.script = echo
            assert (await agent.ask(GET)).status == 200

    run(check())


TRUNCATED = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhello",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_response_is_never_completed(name: str, run: Callable) -> None:
    async def check() -> None:
        async with served(says(TRUNCATED[name], close=True)) as (_, gateway):
            async with agent_at(gateway) as agent:
                await agent.send(GET)
                with pytest.raises((h11.RemoteProtocolError, ConnectionError)):
                    await agent.response()
            assert gateway.counts["truncated"] == 1

    run(check())


def test_to_an_http_1_0_client_truncation_is_a_reset(run: Callable) -> None:
    """Without a length a mere end would look like the end of the body."""

    async def check() -> None:
        async with served(says(TRUNCATED["chunks"], close=True)) as (_, gateway), agent_at(gateway) as agent:
            await agent.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                await agent.reader.read(-1)

    run(check())


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_response_that_ends_with_its_connection_is_complete(version: bytes, run: Callable) -> None:
    async def check() -> None:
        response = b"HTTP/%b 200 OK\r\nX: y\r\n\r\nhello" % version
        async with served(says(response, close=True)) as (_, gateway):
            async with agent_at(gateway) as agent:
                for _ in range(2):
                    reply = await agent.ask(GET)
                    assert (reply.body, reply.field(b"transfer-encoding")) == (b"hello", b"chunked")
            async with agent_at(gateway) as agent:
                reply = await agent.ask(b"GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
                assert (reply.body, reply.field(b"connection")) == (b"hello", b"close")
                assert await agent.rest() == b""

    run(check())


def test_a_head_alone_does_not_end_a_response_without_a_length(run: Callable) -> None:
    async def head_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.0 200 OK\r\nX: y\r\n\r\n")
        await head_arrived.wait()
        writer.write(b"hello")

    head_arrived = asyncio.Event()

    async def check() -> None:
        async with served(head_first) as (_, gateway), agent_at(gateway) as agent:
            await agent.send(GET)
            head = await agent.reader.readuntil(b"\r\n\r\n")
            assert b"Transfer-Encoding: chunked" in head
            head_arrived.set()
            assert await agent.reader.readuntil(b"0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"

    run(check())


@pytest.mark.parametrize("dates", [b"", b"Date: Tue, 15 Nov 1994 08:12:31 GMT\r\n"])
def test_a_response_without_a_date_gets_one(dates: bytes, run: Callable) -> None:
    """9110 6.6.1: a recipient with a clock appends a Date to a response without one that it passes on."""

    async def check() -> None:
        answer = b"HTTP/1.1 200 OK\r\n" + dates + b"Content-Length: 2\r\n\r\nhi"
        async with (
            origin_running(says(answer)) as origin,
            gateway_running(origin.port) as gateway,
            agent_at(gateway) as agent,
        ):
            for _ in range(3):
                (found,) = [value for name, value in (await agent.ask(GET)).fields if name == b"date"]
                if dates:
                    assert found == b"Tue, 15 Nov 1994 08:12:31 GMT"
                else:
                    assert abs(parsedate_to_datetime(found.decode()).timestamp() - time.time()) < 60

    run(check())


def test_fields_of_the_origins_hop_end_here(run: Callable) -> None:
    response = (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine, Date\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\n"
        b"Date: now\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok"
    )

    async def check() -> None:
        async with served(says(response)) as (_, gateway), agent_at(gateway) as agent:
            for _ in range(2):
                reply = await agent.ask(GET)
                assert reply.fields == [(b"date", b"now"), (b"x-kept", b"1"), (b"content-length", b"2")]

    run(check())


def test_a_response_one_byte_at_a_time(run: Callable) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for byte in (
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"5;x\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n"
            ):
                writer.write(bytes([byte]))
                await asyncio.sleep(0)

    async def check() -> None:
        async with served(drip) as (origin, gateway), agent_at(gateway) as agent:
            for _ in range(3):
                reply = await agent.ask(GET)
                assert (reply.interim, reply.body, reply.trailers) == ([100], b"hello!", [(b"x", b"y")])
            assert len(origin.connections) == 1

    run(check())


def test_bytes_after_the_announced_length_are_dropped(run: Callable) -> None:
    """They could otherwise become the response to another client's request."""
    split = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

    async def check() -> None:
        async with served(says(split)) as (origin, gateway), agent_at(gateway) as agent:
            for number in range(1, 4):
                assert (await agent.ask(GET)).body == b"ok"
                assert len(origin.connections) == number

    run(check())


def test_bytes_of_an_idle_origin_connection_are_dropped(run: Callable) -> None:
    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            assert (await agent.ask(GET)).status == 200
            origin.connections[0].writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            await asyncio.sleep(0.05)
            assert (await agent.ask(GET)).body.startswith(b"GET / ")
            assert origin.connections[0].ended.is_set()
            assert len(origin.connections) == 2

    run(check())


def test_a_reset_is_not_the_end_of_a_body(run: Callable) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await go_on.wait()
        reset_on_close(writer.transport)
        writer.transport.abort()

    go_on = asyncio.Event()

    async def check() -> None:
        async with served(breaks) as (_, gateway), agent_at(gateway) as agent:
            await agent.send(GET)
            await agent.reader.readuntil(b"hello\r\n")
            go_on.set()
            assert await agent.rest() == b""
            assert gateway.counts["truncated"] == 1

    run(check())


def test_a_request_is_not_repeated_once_its_response_began(run: Callable) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")

    async def check() -> None:
        async with served(script) as (origin, gateway), agent_at(gateway) as agent:
            assert (await agent.ask(GET)).status == 200
            assert is_problem(await agent.ask(GET), 502)
            assert len(origin.connections) == 1

    run(check())


def dies_on_its_second_request(answers: Callable[[int], bool]) -> Script:
    """Make a script whose connections answer one request and break when they get another."""
    count = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        while True:
            await read_request(reader)
            count += 1
            if not answers(count):
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return script


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"OPTIONS", b"DELETE"])
def test_an_idempotent_request_is_repeated_when_its_idle_connection_had_closed(method: bytes, run: Callable) -> None:
    async def check() -> None:
        async with served(dies_on_its_second_request(lambda count: count != 2)) as (origin, gateway):
            async with agent_at(gateway) as agent:
                for _ in range(2):
                    reply = await agent.ask(b"%b / HTTP/1.1\r\nHost: a\r\n\r\n" % method)
                    assert reply.status == 200
            assert len(origin.connections) == 2
            assert gateway.counts["retried"] == 1

    run(check())


@pytest.mark.parametrize(
    "request_",
    [POST, b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"],
)
def test_a_request_that_is_not_safe_to_repeat_is_not_repeated(request_: bytes, run: Callable) -> None:
    async def check() -> None:
        async with served(dies_on_its_second_request(lambda count: count != 2)) as (origin, gateway):
            async with agent_at(gateway) as agent:
                assert (await agent.ask(GET)).status == 200
                assert is_problem(await agent.ask(request_), 502)
            assert origin.received.count(request_[:5]) == 1

    run(check())


def test_an_idempotent_request_is_repeated_once_only(run: Callable) -> None:
    async def check() -> None:
        async with served(dies_on_its_second_request(lambda count: count == 1)) as (origin, gateway):
            async with agent_at(gateway) as agent:
                assert (await agent.ask(GET)).status == 200
                assert is_problem(await agent.ask(GET), 502)
            assert origin.received.count(b"GET / ") == 3

    run(check())


def test_the_head_limit_holds_for_responses_too(run: Callable) -> None:
    response = b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2000 + b"\r\nContent-Length: 0\r\n\r\n"

    async def check() -> None:
        async with served(says(response), bounds=Bounds(head_bytes=1024)) as (_, gateway), agent_at(gateway) as agent:
            assert is_problem(await agent.ask(GET), 502)

    run(check())


def test_unused_connections_are_closed(run: Callable) -> None:
    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            assert (await agent.ask(GET)).status == 200
            await gateway.pool.connect(1)  # as for a client that has left meanwhile
            await until(lambda: len(origin.connections) == 2)
            gateway.pool.tick(gateway.pool.now + 3)
            assert len(gateway.pool.open) == 2
            gateway.pool.tick(gateway.pool.now + 3)
            for connection in origin.connections:
                await until(connection.ended.is_set)
            assert not gateway.pool.open
            assert not gateway.pool.idle

    run(check())


def test_a_client_that_leaves_ends_its_request_at_the_origin(run: Callable) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()

    async def check() -> None:
        async with served(silent) as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(GET)
            await until(lambda: origin.received)
            reset_on_close(agent.writer.transport)
            agent.writer.transport.abort()
            await until(origin.connections[0].ended.is_set)
            await until(lambda: not gateway.connections)

    run(check())
