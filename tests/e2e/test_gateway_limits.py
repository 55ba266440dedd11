"""Timeouts, limits, draining and TLS of a gateway."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from headgate.config.tree import Bounds, Timeouts
from headgate.origin.gateway import ListenerSettings
from tests.e2e.gateway_setup import Agent, agent_at, read_request, served, tls_keys, until

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def reply_over_tls(port: int, authority: trustme.CA, name: str) -> bytes:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    reply = await Agent(reader, writer).ask(GET)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() is None
    writer.close()
    await writer.wait_closed()
    return reply.body


async def test_handshakes_count_as_connections_and_fail_in_time(tmp_path: Path) -> None:
    tls = tls_keys(tmp_path, authority := trustme.CA(), "a.example")
    bounds, timeouts = Bounds(connections=2, client_connections=2), Timeouts(header=1.0)
    async with served(listener=ListenerSettings(tls), bounds=bounds, timeouts=timeouts) as (_, gateway):
        async with agent_at(gateway) as first, agent_at(gateway) as second, agent_at(gateway) as third:
            assert await third.rest() == b""
            assert len(gateway.connections) == 2
            assert gateway.context.counters.connections_refused == {"limit": 0, "client_limit": 1}
            await first.send(GET)
            assert await first.rest() + await second.rest() == b""
        await until(lambda: gateway.context.counters.handshakes_failed == 2 and not gateway.connections)
        body = await reply_over_tls(gateway.addresses[0][1], authority, "a.example")
        assert b"X-Forwarded-Proto: https\r\n" in body
        assert b"proto=https\r\n" in body


UPGRADE = GET[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("request_head", [GET, UPGRADE, GET[:-4]])
async def test_clients_that_end_tls_early_cause_no_log_lines(
    request_head: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    tls = tls_keys(tmp_path, authority, "a.example")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        writer.write(switch if b"websocket" in head else b"")
        await reader.read()

    async with served(silent, listener=ListenerSettings(tls)) as (_, gateway):
        async with agent_at(gateway, ssl=trusting, server_hostname="a.example") as agent:
            await agent.send(request_head)
            await asyncio.sleep(0.1)
        await until(lambda: not gateway.connections and not gateway.tunnels)
    assert caplog.messages == []
