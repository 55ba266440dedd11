"""Streams: a tunnel and its target."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hyperframe.frame import DataFrame, WindowUpdateFrame

from headgate.proxy.connect import DEFAULT_IDLE, AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.limits import INITIAL_WINDOW
from tests.e2e.http2_client import Tunnel
from tests.e2e.tunnels import StubDecision, until
from tests.unit.proxy.connected import Connected, connected

CONNECT_ERROR = 10


class DecisionWithTarget(StubDecision):
    """A decision that connects every tunnel to the same `target`, whose socket is soon full if `narrow`."""

    def __init__(self, *, idle: float = DEFAULT_IDLE, narrow: bool = False) -> None:
        super().__init__(idle=idle)
        if narrow:  # not TCP, whose windows open when it pleases them
            self._way, self.target = socket.socketpair()
            self._way.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 13)
        else:
            listener = socket.create_server(("127.0.0.1", 0))
            self.target = socket.create_connection(listener.getsockname())
            self._way, _ = listener.accept()
            listener.close()
        self._way.settimeout(0)
        self.target.settimeout(0)

    async def open(self, asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        return AcceptedConnect(socket=self._way, on_closed=lambda *told: self.closed.append(told), idle=self.idle)

    async def read(self, count: int) -> bytes:
        """Read so many bytes at the target."""
        found = b""
        while len(found) < count:
            piece = await asyncio.get_running_loop().sock_recv(self.target, count - len(found))
            assert piece
            found += piece
        return found

    async def read_end(self) -> bool:
        """Return whether the target reads the end next."""
        return await asyncio.get_running_loop().sock_recv(self.target, 1) == b""

    def reset(self) -> None:
        """Close the target's end with a reset."""
        self.target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.target.close()


@asynccontextmanager
async def tunnelled(
    decision: DecisionWithTarget | None = None, **settings: object
) -> AsyncIterator[tuple[Connected, DecisionWithTarget, Tunnel]]:
    decision = decision or DecisionWithTarget()
    try:
        async with connected(decision, **settings) as pair:
            yield pair, decision, await pair.client.open("a.example:443")
    finally:
        decision.target.close()


async def fill(pair: Connected, tunnel: Tunnel) -> bytes:
    """Send until something waits; returns what was sent."""
    sent = b""
    while not pair.connection.held:
        piece = os.urandom(min(tunnel.window, 20_000))
        sent += piece
        await pair.client.send_data(tunnel, piece)
        await pair.client.ping()
    return sent


async def test_many_small_frames_are_forwarded_in_order() -> None:
    async with tunnelled() as (pair, decision, tunnel):
        pieces = [bytes([number % 256]) * (number % 7 + 1) for number in range(2000)]
        pair.client.send_frames(*(DataFrame(tunnel.number, data=piece) for piece in pieces))
        assert await decision.read(sum(map(len, pieces))) == b"".join(pieces)


async def test_buffered_data_is_forwarded_in_order() -> None:
    decision = DecisionWithTarget(narrow=True)
    async with tunnelled(decision) as (pair, _, tunnel):
        sent = await fill(pair, tunnel)
        more = os.urandom(5000)
        await pair.client.send_data(tunnel, more, end=True)
        await pair.client.ping()
        assert pair.connection.held == pair.server.loop_state.buffered > 5000
        assert await decision.read(len(sent) + 5000) == sent + more
        assert await decision.read_end()
        assert (pair.connection.held, pair.server.loop_state.buffered) == (0, 0)


async def test_unforwarded_bytes_do_not_count() -> None:
    decision = DecisionWithTarget(narrow=True)
    async with tunnelled(decision) as (pair, _, tunnel):
        sent = await fill(pair, tunnel)
        waiting = pair.connection.held
        pair.client.reset(tunnel)
        await pair.client.ping()
        assert await decision.read(len(sent) - waiting) == sent[: len(sent) - waiting]
        assert await decision.read_end()
        assert decision.closed == [(0, len(sent) - waiting, "client_gone")]
        assert pair.server.loop_state.buffered == 0


async def test_a_reset_is_passed_on_as_a_reset() -> None:
    async with tunnelled() as (pair, decision, tunnel):
        pair.client.reset(tunnel)
        with pytest.raises(ConnectionResetError):
            await decision.read(1)
        assert decision.closed == [(0, 0, "client_gone")]


async def test_a_target_lost_while_data_is_buffered() -> None:
    decision = DecisionWithTarget(narrow=True)
    async with tunnelled(decision) as (pair, _, tunnel):
        await fill(pair, tunnel)
        decision.target.close()
        assert await pair.client.was_reset(tunnel) == CONNECT_ERROR
        assert decision.closed[0][2] == "target_gone"
        assert pair.server.loop_state.buffered == 0


async def test_a_target_lost_while_it_is_not_read() -> None:
    async with tunnelled(client={"updates_windows": False}) as (pair, decision, tunnel):
        decision.target.send(bytes(100_000))
        await pair.client.until(lambda: len(tunnel.received) == 65_535)
        decision.reset()
        assert await pair.client.was_reset(tunnel) == CONNECT_ERROR


async def test_a_hangup_with_unread_data_is_not_reported_again() -> None:
    async with tunnelled(client={"updates_windows": False}) as (pair, decision, tunnel):
        payload = os.urandom(100_000)
        decision.target.send(payload)
        decision.target.shutdown(socket.SHUT_WR)
        await pair.client.until(lambda: len(tunnel.received) == 65_535)
        pair.client.end(tunnel)
        assert await decision.read_end()
        [stream] = pair.connection._streams.values()
        await until(lambda: not stream._registered)  # it would be reported again and again
        for number in (0, tunnel.number):
            pair.client.send_frames(WindowUpdateFrame(number, window_increment=100_000))
        assert await pair.client.ended(tunnel) == payload
        assert decision.closed == [(100_000, 0, "ended")]


async def test_the_targets_end_follows_its_last_byte() -> None:
    async with tunnelled() as (pair, decision, tunnel):
        decision.target.send(b"last words")
        decision.target.shutdown(socket.SHUT_WR)
        assert await pair.client.ended(tunnel) == b"last words"
        await pair.client.send_data(tunnel, b"thanks")
        assert await decision.read(6) == b"thanks"
        assert (pair.connection.bytes_passed, decision.closed) == ((10, 6), [])
        pair.client.end(tunnel)
        await until(lambda: decision.closed)
        assert decision.closed == [(10, 6, "ended")]


async def test_a_stream_is_closed_once() -> None:
    async with tunnelled() as (pair, decision, tunnel):
        [stream] = pair.connection._streams.values()
        stream.close("idle")
        stream.close("drained")
        pair.connection.finish_turn()
        assert await pair.client.was_reset(tunnel) == 8
        assert decision.closed == [(0, 0, "idle")]


@pytest.mark.parametrize("early", [b"early", b""])
async def test_early_data_and_its_end_are_forwarded(early: bytes) -> None:
    decision = DecisionWithTarget()
    decision.gate = asyncio.Event()
    async with connected(decision) as pair:
        tunnel = pair.client.ask("a.example:443", ended=not early)
        if early:
            await pair.client.send_data(tunnel, early, end=True)
        other = pair.client.ask("a.example:443")
        pair.client.reset(other)
        await pair.client.ping()
        decision.gate.set()
        assert await pair.client.answered(tunnel) == 200
        assert await decision.read(len(early)) == early
        assert await decision.read_end()
        decision.target.close()
        await pair.client.ended(tunnel)
        assert decision.closed == [(0, len(early), "ended")]


async def test_data_is_forwarded_after_the_targets_end() -> None:
    decision = DecisionWithTarget(narrow=True)
    async with tunnelled(decision) as (pair, _, tunnel):
        sent = await fill(pair, tunnel)
        pair.client.end(tunnel)
        decision.target.shutdown(socket.SHUT_WR)
        await pair.client.ended(tunnel)
        assert decision.closed == []
        assert await decision.read(len(sent)) == sent
        assert await decision.read_end()
        assert decision.closed == [(0, len(sent), "ended")]


async def test_a_slow_target_keeps_its_tunnel() -> None:
    decision = DecisionWithTarget(idle=10, narrow=True)
    async with tunnelled(decision) as (pair, _, tunnel):
        await fill(pair, tunnel)
        while pair.connection.held < 40_000:
            await pair.client.send_data(tunnel, bytes(5000))
            await pair.client.ping()
        for _ in range(3):
            pair.advance(9)
            before = pair.connection.held
            while pair.connection.held == before:
                await decision.read(1000)
                await asyncio.sleep(0.001)
        assert decision.closed == []
        pair.advance(10)
        assert decision.closed[0][2] == "idle"
        assert await pair.client.was_reset(tunnel) == 8


async def test_a_slow_target_holds_no_more_than_the_first_window() -> None:
    decision = DecisionWithTarget(narrow=True)
    async with tunnelled(decision) as (pair, _, tunnel):
        for _ in range(60):
            await pair.client.send_data(tunnel, bytes(min(tunnel.window, 10_000)))
            await pair.client.ping()
            if not tunnel.window:
                await decision.read(5000)
        assert 0 < pair.connection.held <= INITIAL_WINDOW
        assert pair.connection._streams[tunnel.number].window.limit == INITIAL_WINDOW
