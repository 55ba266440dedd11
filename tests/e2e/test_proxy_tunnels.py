"""Tunnels through the proxy's connections: data and its end arrive complete."""

import asyncio
import hashlib
import os

import pytest

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
