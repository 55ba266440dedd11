"""Limits of tunnels over HTTP/2, and the windows of tunnels that share a connection."""

import asyncio
import contextlib
import os
from collections.abc import Callable

import pytest
from hyperframe.frame import SettingsFrame, WindowUpdateFrame

from headgate.proxy.connect import TunnelLimits
from headgate.proxy.http2.connection import Http2Connection
from headgate.proxy.http2.limits import MAX_STREAM_WINDOW
from tests.e2e.http2_client import WIDEST, http2_at
from tests.e2e.tunnels import Deciding, Target, target_running, trusting, until

FIRST = 65_535
"""Bytes of a window of which nothing has been said."""
CANCEL = 8


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (TunnelLimits(idle=0.3), "idle"),
        (TunnelLimits(max_seconds=0.3), "max_seconds"),
        (TunnelLimits(max_bytes=100_000), "max_bytes"),
        (TunnelLimits(byte_ratio=2.0), "byte_ratio"),
    ],
)
def test_a_tunnel_keeps_to_its_limits(limits: TunnelLimits, why: str, http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding(limits)
        async with target_running() as port, http2(deciding) as (_, client):
            tunnel = await client.open(port)
            deciding.limits = TunnelLimits()
            other = await client.open(port)
            if why in {"max_bytes", "byte_ratio"}:
                with contextlib.suppress(AssertionError):  # it is over amid that
                    await client.put(tunnel, bytes(60_000))
                    await client.put(tunnel, bytes(60_000))
            assert await client.was_reset(tunnel) == CANCEL
            await client.put(other, b"x")
            assert await client.arrived(other, 1) == b"x"
            [(received, sent, told)] = deciding.closed
            assert told == why
            assert received + sent <= 100_000 or why == "byte_ratio"

    run(check())


def test_bytes_keep_an_idle_tunnel_alive(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, http2(Deciding(TunnelLimits(idle=1.0))) as (_, client):
            tunnel = await client.open(port)
            for _ in range(8):
                await asyncio.sleep(0.2)
                await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 8) == b"x" * 8

    run(check())


async def never_reads(target: Target) -> None:
    target.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def test_a_stalled_tunnel_buffers_little_and_does_not_delay_others(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running(never_reads) as still, target_running() as port, http2() as (server, client):
            stuck = [await client.open(still) for _ in range(3)]
            while any(tunnel.window for tunnel in stuck):
                for tunnel in stuck:
                    await client.put(tunnel, bytes(min(tunnel.window, 60_000)))
                await client.pinged()
            assert server.loop_state.buffered <= 3 * MAX_STREAM_WINDOW
            tunnel = await client.open(port)
            payload = os.urandom(3 << 20)
            await client.put(tunnel, payload, end=True)
            assert await client.ended(tunnel) == payload
            for one in stuck:
                client.reset(one)
            await client.pinged()
            assert server.loop_state.buffered == 0

    run(check())


def test_a_tunnel_that_never_moved_holds_no_more_than_the_first_window(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with target_running() as port, http2(deciding) as (server, client):
            tunnel = client.ask(port)
            await client.put(tunnel, bytes(FIRST))
            await client.pinged()
            assert (tunnel.window, server.loop_state.buffered) == (0, FIRST)
            deciding.waits.set()
            assert await client.arrived(tunnel, FIRST) == bytes(FIRST)
            await client.pinged()
            assert tunnel.window == 2 * FIRST
            assert server.loop_state.buffered == 0

    run(check())


def test_windows_widen_while_bytes_flow(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running(Target.swallow) as port, http2() as (_, client):
            tunnel = await client.open(port)
            widest = 0
            for _ in range(100):
                await client.put(tunnel, bytes(100_000))
                await client.pinged()
                widest = max(widest, min(tunnel.window, client.window))
            assert MAX_STREAM_WINDOW / 2 < widest <= MAX_STREAM_WINDOW

    run(check())


def test_a_target_is_not_read_ahead_of_its_client(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        payload = os.urandom(1 << 20)

        async def pour(target: Target) -> None:
            target.writer.write(payload)
            await target.writer.drain()
            await target.reader.read()

        async with target_running(pour) as port, http2(client={"generous": False}) as (server, client):
            tunnel = await client.open(port)
            await client.until(lambda: len(tunnel.received) == FIRST)
            other = client.ask(port)  # the connection's window is used up, and it can be answered all the same
            assert await client.answered(other) == 200
            await client.pinged()
            assert (len(tunnel.received), len(other.received), server.loop_state.buffered) == (FIRST, 0, 0)
            client.say(WindowUpdateFrame(tunnel.number, window_increment=1 << 20))
            await client.pinged()
            assert len(tunnel.received) == FIRST
            client.say(WindowUpdateFrame(0, window_increment=1000))
            await client.until(lambda: len(tunnel.received) + len(other.received) == FIRST + 1000)
            client.say(WindowUpdateFrame(0, window_increment=WIDEST - 1000))
            await client.until(lambda: len(tunnel.received) == 1 << 20)
            assert bytes(tunnel.received) == payload

    run(check())


def test_settings_move_the_windows_of_streams_that_are_open(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async def pour(target: Target) -> None:
            target.writer.write(b"x" * 200_000)
            await target.reader.read()

        size = SettingsFrame.INITIAL_WINDOW_SIZE
        ungenerous = {"generous": False, "settings": {size: 10}}
        async with target_running(pour) as port, http2(client=ungenerous) as (_, client):
            client.say(WindowUpdateFrame(0, window_increment=1 << 20))
            tunnel = await client.open(port)
            await client.until(lambda: len(tunnel.received) == 10)
            client.say(SettingsFrame(0, settings={size: 1000}))
            await client.until(lambda: len(tunnel.received) == 1000)
            client.say(SettingsFrame(0, settings={size: 0}))  # and the stream owes 1000
            client.say(WindowUpdateFrame(tunnel.number, window_increment=1000))
            await client.pinged()
            assert len(tunnel.received) == 1000
            client.say(WindowUpdateFrame(tunnel.number, window_increment=1))
            await client.until(lambda: len(tunnel.received) == 1001)
            later = await client.open(port)
            await client.pinged()
            assert not later.received

    run(check())


def test_targets_are_not_read_for_a_client_that_does_not_read(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        poured = 0

        async def pour(target: Target) -> None:
            nonlocal poured
            while True:
                target.writer.write(bytes(1 << 16))
                await target.writer.drain()
                poured += 1 << 16

        async with target_running(pour) as port, http2() as (server, client):
            settings = {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}
            async with http2_at(server.addresses[0], trusting(), settings=settings) as deaf:
                for _ in range(5):
                    await deaf.open(port)
                deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
                before = -1
                while poured > before:
                    before = poured
                    await asyncio.sleep(0.3)
                assert server.loop_state.buffered < 1 << 20
                tunnel = await client.open(port)
                assert await client.arrived(tunnel, 1 << 20)
            await until(lambda: server.tunnel_count <= 1)

    run(check())


def test_many_small_records_are_read_in_one_turn(
    http2: Callable, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        turns = 0
        read = Http2Connection._read

        def counted(self: Http2Connection) -> None:
            nonlocal turns
            turns += 1
            read(self)

        async with target_running() as port, http2() as (_, client):
            tunnel = await client.open(port)
            monkeypatch.setattr(Http2Connection, "_read", counted)
            for number in range(500):  # each in a record of its own
                await client.put(tunnel, bytes([number % 256]))
            assert await client.arrived(tunnel, 500) == bytes(number % 256 for number in range(500))
            assert turns < 250

    run(check())
