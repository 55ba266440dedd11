"""Tunnels through the proxy's connections: data and its end arrive complete."""

import asyncio
import hashlib
import os
from collections.abc import Callable

import pytest
from hyperframe.frame import SettingsFrame

from tests.e2e.http2_client import Http2Client
from tests.e2e.tunnels import LARGE, Encryption, StubDecision, Target, client_at, proxy_running, target_running, until

pytestmark = pytest.mark.usefixtures("run")


async def test_bulk_is_relayed_in_both_directions_at_once(encryption: Encryption) -> None:
    up, down = os.urandom(LARGE), os.urandom(LARGE)
    received, read = hashlib.sha256(), asyncio.Event()

    async def both(target: Target) -> None:
        async def send() -> None:
            target.writer.write(down)
            await target.writer.drain()

        sending = asyncio.create_task(send())
        while piece := await target.reader.read(1 << 18):
            received.update(piece)
        await sending
        read.set()

    decision = StubDecision()
    async with target_running(both) as port, proxy_running(decision, tls=encryption.listener) as server:
        async with client_at(server, tls=encryption.client) as client:
            await client.ask(port)
            sending = asyncio.create_task(client.send(up))
            assert await client.read(LARGE) == down
            await sending
        await until(lambda: decision.closed)
        assert server.loop_state.buffered == 0
        await read.wait()
    assert received.digest() == hashlib.sha256(up).digest()
    assert decision.closed == [(LARGE, LARGE, "ended")]


async def test_many_tunnels_share_an_http_2_connection(http2: Callable) -> None:
    async def one(client: Http2Client, port: int, number: int) -> None:
        payload = os.urandom(20_000 + 10_000 * number)
        tunnel = await client.open(port)
        await client.send_data(tunnel, payload, end=True)
        assert await client.ended(tunnel) == payload

    decision = StubDecision()
    async with target_running() as port, http2(decision) as (_, client):
        assert client.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] >= 100
        await asyncio.gather(*(one(client, port, number) for number in range(30)))
        await until(lambda: len(decision.closed) == 30)
    assert {why for _, _, why in decision.closed} == {"ended"}
    assert all(received == sent for received, sent, _ in decision.closed)
