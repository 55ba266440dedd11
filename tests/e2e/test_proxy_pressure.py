"""Clients that send slowly, flood, stall or disappear: their cost is bounded, and other clients are not affected."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from headgate.proxy.server import TunnelServer
from tests.e2e.tunnels import (
    Encryption,
    StubDecision,
    Target,
    client_at,
    client_context,
    listener_context,
    open_tunnel,
    proxy_running,
    target_running,
    until,
)

pytestmark = pytest.mark.usefixtures("run")

MOST_READ_AHEAD = 32 * 2**20


async def is_served(server: TunnelServer, port: int, encryption: Encryption) -> bool:
    """Check that another client gets a tunnel, and a response through it."""
    async with client_at(server, tls=encryption.client) as bystander:
        await open_tunnel(bystander, port)
        await bystander.send(b"hello")
        return await bystander.read(5) == b"hello"


async def test_the_oldest_handshake_above_the_limit_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.proxy.server._MAX_HANDSHAKES", 2)

    async with (
        target_running() as port,
        proxy_running(tls=listener_context(tmp_path)) as server,
        client_at(server) as first,
        client_at(server) as second,
        client_at(server) as quiet,
    ):
        for client in (first, second):
            await client.send(b"\x16")
            await asyncio.sleep(0.02)
        assert await is_served(server, port, Encryption(None, client_context()))
        with contextlib.suppress(ConnectionResetError):
            assert await first.rest() == b""
        await until(lambda: len(server.connections) == 2)
        assert not second.reader.at_eof()
        assert not quiet.reader.at_eof()


async def test_a_stalled_tunnel_is_buffered_within_a_limit(encryption: Encryption) -> None:
    poured = 0

    async def serve(target: Target) -> None:
        nonlocal poured
        if (await target.reader.readexactly(1)) == b"e":
            await target.echo()
            return
        while True:
            target.writer.write(b"x" * 65_536)
            await target.writer.drain()
            poured += 65_536

    async with target_running(serve) as port, proxy_running(tls=encryption.listener) as server:
        async with client_at(server, tls=encryption.client) as client:
            await open_tunnel(client, port)
            await client.send(b"p")
            client.writer.transport.pause_reading()
            before = -1
            while before < poured:
                before = poured
                await asyncio.sleep(0.6)
            assert 0 < poured < MOST_READ_AHEAD
            assert server.loop_state.buffered <= 2**20
            async with client_at(server, tls=encryption.client) as bystander:
                await open_tunnel(bystander, port)
                await bystander.send(b"ehello")
                assert await bystander.read(5) == b"hello"
            client.reset()
        await until(lambda: not server.tunnels.open)
        assert server.loop_state.buffered == 0


async def test_a_connection_above_the_limit_is_503(encryption: Encryption) -> None:
    decision = StubDecision()
    async with (
        target_running() as port,
        proxy_running(decision, tls=encryption.listener, connections=2) as server,
        client_at(server, tls=encryption.client) as first,
        client_at(server, tls=encryption.client),
    ):
        await open_tunnel(first, port)
        async with client_at(server, tls=encryption.client) as third:
            answer = await third.ask(port)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'details="connections"' in answer
            assert await third.rest() == b""
        await first.send(b"hello")
        assert await first.read(5) == b"hello"
        assert decision.early_refusals == ["connections"]


async def test_connections_far_above_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.proxy.server._MAX_SURPLUS", 1)

    decision = StubDecision()
    async with (
        proxy_running(decision, connections=1) as server,
        client_at(server),
        client_at(server),
        client_at(server) as third,
    ):
        assert await third.rest() == b""
        assert len(server.connections) == 2
        assert decision.early_refusals == ["connections"]
