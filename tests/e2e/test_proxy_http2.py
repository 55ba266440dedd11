"""HTTP/2 connections inside TLS: several tunnels in one, their windows, and the graceful shutdown."""

import asyncio
import os
from collections.abc import Callable

import pytest
from hyperframe.frame import SettingsFrame

from tests.e2e.http2_client import Http2Client
from tests.e2e.tunnels import StubDecision, target_running, until

pytestmark = pytest.mark.usefixtures("run")

CONNECT_ERROR = 10


async def test_data_is_relayed_in_both_directions(http2: Callable) -> None:
    decision = StubDecision()
    async with target_running() as port, http2(decision) as (server, client):
        tunnel = await client.open(port, ("proxy-authorization", "Bearer x"))
        assert tunnel.fields == {}
        for word in (b"hello\n", b"x", b"y" * 1000):
            await client.send_data(tunnel, word)
            assert await client.receive(tunnel, len(word)) == word
        assert server.tunnel_count == 1
        assert server.bytes_passed == (1007, 1007)
        client.end(tunnel)
        await client.ended(tunnel)
        await until(lambda: decision.closed)
        assert server.tunnel_count == 0
    assert decision.closed == [(1007, 1007, "ended")]
    [asked] = decision.requests
    assert asked.authority == f"a.example:{port}"
    assert list(asked.fields) == [("proxy-authorization", "Bearer x")]
    assert (asked.protocol, asked.peer[0], asked.draining) == ("h2", "127.0.0.1", False)
    assert 30 < asked.head_bytes < 80


async def test_many_tunnels_share_a_connection(http2: Callable) -> None:
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


"""Bytes of a window of which nothing has been said."""
