"""HTTP/2 connections inside TLS: several tunnels in one, their windows, and the graceful shutdown."""

import asyncio
import hashlib
import os
from collections.abc import Callable

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, SettingsFrame, WindowUpdateFrame

from tests.e2e.http2_client import WIDEST, Http2Client
from tests.e2e.tunnels import StubDecision, Target, target_running, until

CONNECT_ERROR = 10


def test_data_is_relayed_in_both_directions(http2: Callable, run: Callable) -> None:
    async def check() -> None:
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

    run(check())


def test_many_tunnels_share_a_connection(http2: Callable, run: Callable) -> None:
    async def one(client: Http2Client, port: int, number: int) -> None:
        payload = os.urandom(20_000 + 10_000 * number)
        tunnel = await client.open(port)
        await client.send_data(tunnel, payload, end=True)
        assert await client.ended(tunnel) == payload

    async def check() -> None:
        decision = StubDecision()
        async with target_running() as port, http2(decision) as (_, client):
            assert client.settings[SettingsFrame.MAX_CONCURRENT_STREAMS] >= 100
            await asyncio.gather(*(one(client, port, number) for number in range(30)))
            await until(lambda: len(decision.closed) == 30)
        assert {why for _, _, why in decision.closed} == {"ended"}
        assert all(received == sent for received, sent, _ in decision.closed)

    run(check())


@pytest.mark.parametrize("frame_size", [100, 16_384])
def test_bulk_data_arrives_whole_in_frames_of_any_size(frame_size: int, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        payload = os.urandom(min(4 << 20, frame_size * 4000))
        async with target_running() as port, http2() as (_, client):
            tunnel = await client.open(port)
            sent = 0
            while sent < len(payload):
                await client.until(lambda: min(tunnel.window, client.window) >= frame_size)
                piece = payload[sent : sent + frame_size]
                sent += len(piece)
                tunnel.window -= len(piece)
                client.window -= len(piece)
                client.send_frames(DataFrame(tunnel.number, data=piece))
                await client.writer.drain()
            client.end(tunnel)
            assert hashlib.sha256(await client.ended(tunnel)).digest() == hashlib.sha256(payload).digest()

    run(check())


@pytest.mark.parametrize("ending", ["reset", "gone"])
def test_a_decision_is_cancelled_when_its_stream_ends(ending: str, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        decision = StubDecision()
        decision.gate = asyncio.Event()
        async with http2(decision) as (server, client):
            tunnel = client.ask("a.example:443")
            await until(lambda: decision.requests)
            assert server.tunnel_count == 1
            if ending == "reset":
                client.reset(tunnel)
            else:
                client.writer.transport.abort()
            await until(lambda: decision.cancelled)
            assert server.tunnel_count == 0
        assert decision.closed == []

    run(check())


def test_a_connection_after_goaway_closes_when_its_tunnels_end(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, http2() as (_, client):
            tunnel = await client.open(port)
            client.send_frames(GoAwayFrame(0))
            await client.send_data(tunnel, b"x")
            assert await client.receive(tunnel, 1) == b"x"
            client.end(tunnel)
            await client.ended(tunnel)
            assert (await client.final_goaway()).error_code == 0

    run(check())


FIRST = 65_535
"""Bytes of a window of which nothing has been said."""


def test_a_target_is_not_read_ahead_of_its_client(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        payload = os.urandom(1 << 20)

        async def pour(target: Target) -> None:
            target.writer.write(payload)
            await target.writer.drain()
            await target.reader.read()

        async with target_running(pour) as port, http2(client={"updates_windows": False}) as (server, client):
            tunnel = await client.open(port)
            await client.until(lambda: len(tunnel.received) == FIRST)
            other = client.ask(port)  # the connection's window is used up, and it can be answered all the same
            assert await client.answered(other) == 200
            await client.ping()
            assert (len(tunnel.received), len(other.received), server.loop_state.buffered) == (FIRST, 0, 0)
            client.send_frames(WindowUpdateFrame(tunnel.number, window_increment=1 << 20))
            await client.ping()
            assert len(tunnel.received) == FIRST
            client.send_frames(WindowUpdateFrame(0, window_increment=1000))
            await client.until(lambda: len(tunnel.received) + len(other.received) == FIRST + 1000)
            client.send_frames(WindowUpdateFrame(0, window_increment=WIDEST - 1000))
            await client.until(lambda: len(tunnel.received) == 1 << 20)
            assert bytes(tunnel.received) == payload

    run(check())
