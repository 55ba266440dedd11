"""Clients that do not read: what they cost stays bounded, and does not affect other clients."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trustme

from headgate.config.tree import Timeouts
from headgate.origin import header
from tests.e2e.gateway_setup import agent_at, read_request, served, until
from tests.e2e.test_gateway_limits import keys

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MOST_IN_FLIGHT = 24 * 2**20  # what four sockets' buffers and ours can hold together


def test_the_origin_is_released_when_a_client_never_reads(run: Callable) -> None:
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


def test_a_client_that_never_reads_is_not_read_for_ever(run: Callable) -> None:
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


def test_an_open_connection_is_identified_by_a_new_policy(run: Callable) -> None:
    async def check() -> None:
        async with served(rule="1/h burst 1") as (_, gateway), agent_at(gateway) as agent:
            first = b"GET / HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\n\r\n"
            assert (await agent.ask(first)).status == 200
            gateway.policy = msgspec.structs.replace(gateway.policy, identify=header("X-Key"))
            assert (await agent.ask(first)).status == 200
            assert (await agent.ask(first.replace(b"1\r\n\r\n", b"2\r\n\r\n"))).status == 200
            assert (await agent.ask(first)).status == 503

    run(check())


def test_a_thousand_rejections_in_one_packet_leave_other_clients_their_turn(run: Callable) -> None:
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
def test_clients_that_end_tls_early_cause_no_log_lines(
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
