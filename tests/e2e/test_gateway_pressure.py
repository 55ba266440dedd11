"""Agents and origins that do not read, dribble or pour: what they cost stays bounded, and nobody else pays for it."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trustme

from headgate.config.tree import Timeouts
from headgate.origin import header
from headgate.origin.gateway.upstream import UpstreamConnection
from tests.e2e.scripted import agent_at, echo, read_request, served, until
from tests.e2e.test_gateway_limits import keys

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MOST_IN_FLIGHT = 24 * 2**20  # what four sockets' buffers and ours can hold together


def test_the_origin_is_let_go_when_an_agent_never_reads(run: Callable) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()

    async def check() -> None:
        settings = {"timeouts": Timeouts(idle=0.2)}
        async with served(pour, **settings) as (origin, gateway), agent_at(gateway, limit=1024) as agent:
            await agent.send(GET)
            await until(lambda: origin.connections and not gateway.connections)
            await until(origin.connections[0].ended.is_set)
            assert not gateway.pool.open
            agent.writer.transport.abort()

    run(check())


def test_an_agent_that_repeats_itself_and_never_reads_is_held_back(run: Callable) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000

    async def big(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(whole)

    async def check() -> None:
        async with served(big) as (_, gateway), agent_at(gateway, limit=1024) as agent:
            for _ in range(2 * MOST_IN_FLIGHT // len(whole)):
                await agent.send(GET)  # each in a packet of its own
                await asyncio.sleep(0.002)
            [connection] = gateway.connections
            assert connection._transport.get_write_buffer_size() < 2**20
            agent.writer.transport.abort()

    run(check())


def test_an_agent_held_to_the_end_of_its_body_is_heard_again(run: Callable) -> None:
    async def check() -> None:
        answer = asyncio.Event()

        async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            await answer.wait()
            writer.write(OK)
            await echo(reader, writer)

        async with served(early) as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
            await until(lambda: origin.received.endswith(b"hello"))
            [connection] = gateway.connections
            assert connection.exchange is not None
            connection.exchange.pause_request()  # as the loop does when the origin has not read the last of it
            answer.set()
            assert (await agent.response()).status == 200
            assert (await agent.ask(GET)).status == 200

    run(check())


def test_a_connection_with_unsent_bytes_is_not_given_to_the_next_request(run: Callable) -> None:
    async def check() -> None:
        answer = asyncio.Event()

        async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                writer.transport.pause_reading()
                await answer.wait()
            writer.write(OK)
            await asyncio.sleep(60)

        async with served(unread) as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MOST_IN_FLIGHT)
            await until(lambda: gateway.pool.open)
            [connection] = gateway.pool.open
            connection._transport.set_write_buffer_limits(high=2 * MOST_IN_FLIGHT)
            await agent.send(b"x" * MOST_IN_FLIGHT)
            await until(lambda: not next(iter(gateway.connections)).exchange.takes_body)
            answer.set()
            assert (await agent.response()).status == 200
            assert (await agent.ask(GET)).status == 200
            assert len(origin.connections) == 2

    run(check())


def test_what_is_held_until_there_is_a_connection_lets_nobody_pour(run: Callable) -> None:
    async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        await asyncio.sleep(60)

    async def check() -> None:
        async with served(unread) as (_, gateway), agent_at(gateway) as agent:
            connect, go = gateway.pool.connect, asyncio.Event()

            async def slowly(seconds: float) -> UpstreamConnection:
                await go.wait()
                connection = await connect(seconds)
                connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                connection._transport.set_write_buffer_limits(high=0)
                return connection

            gateway.pool.connect = slowly  # type: ignore[method-assign]
            agent.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % 2**40)
            sent = 0

            async def pour() -> None:
                nonlocal sent
                with suppress(ConnectionError):
                    while sent < 2 * MOST_IN_FLIGHT:
                        agent.writer.write(b"x" * 65536)
                        await agent.writer.drain()
                        sent += 65536

            pouring = asyncio.create_task(pour())
            await asyncio.sleep(0.2)
            go.set()
            await asyncio.sleep(0.5)
            assert sent < MOST_IN_FLIGHT
            pouring.cancel()
            agent.writer.transport.abort()

    run(check())


def test_empty_lines_buy_no_time(run: Callable) -> None:
    async def check() -> None:
        async with served(timeouts=Timeouts(header=0.1)) as (_, gateway), agent_at(gateway) as agent:

            async def drip() -> None:
                while not agent.writer.is_closing():
                    await agent.send(b"\r\n")
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            assert await agent.rest() == b""
            dripping.cancel()

    run(check())


@pytest.mark.parametrize("memo", [False, True])
def test_a_living_connection_is_identified_as_the_new_policy_says(memo: bool, run: Callable) -> None:
    async def check() -> None:
        async with served(rule="1/h burst 1") as (_, gateway), agent_at(gateway) as agent:
            first = b"GET / HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\n\r\n"
            if memo:
                assert (await agent.ask(first)).status == 200
            gateway.policy = msgspec.structs.replace(gateway.policy, identify=header("X-Key"))
            assert (await agent.ask(first)).status == 200
            assert (await agent.ask(first.replace(b"1\r\n\r\n", b"2\r\n\r\n"))).status == 200
            assert (await agent.ask(first)).status == 503

    run(check())


def test_a_thousand_rejections_in_one_packet_leave_others_their_turn(run: Callable) -> None:
    async def check() -> None:
        async with served(rule="1/h burst 1") as (_, gateway), agent_at(gateway) as agent:
            assert (await agent.ask(GET)).status == 200
            [connection] = gateway.connections
            connection.data_received(GET * 1000)
            assert len(connection._buffer) > 900 * len(GET)  # the rest waits until others had their turn
            agent.writer.write_eof()  # which does not cut it short
            answers = await agent.rest()
            assert answers.count(b"HTTP/1.1 503 ") == answers.count(b"HTTP/1.1 ") == 1000

    run(check())


UPGRADE = GET[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("request_head", [GET, UPGRADE, GET[:-4]])
def test_agents_that_end_tls_early_write_nothing_into_the_log(
    request_head: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture, run: Callable
) -> None:
    authority = trustme.CA()
    tls = keys(tmp_path, authority, "a.example")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        writer.write(switch if b"websocket" in head else b"")
        await reader.read()

    async def check() -> None:
        async with served(silent, tls=tls.context) as (_, gateway):
            async with agent_at(gateway, ssl=trusting, server_hostname="a.example") as agent:
                await agent.send(request_head)
                await asyncio.sleep(0.1)
            await until(lambda: not gateway.connections and not gateway.tunnels)

    run(check())
    assert caplog.messages == []
