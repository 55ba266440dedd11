"""A connection's turns, deadlines and shutdown."""

import asyncio
import contextlib
import os
import socket
import ssl
from types import SimpleNamespace

import pytest
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame

from headgate.proxy import http2 as module
from headgate.proxy.connect import RefusedConnect, TunnelTimeouts
from headgate.proxy.poller import READ
from tests.e2e.http2_client import WIDEST
from tests.e2e.tunnels import StubDecision, Target, target_running, until
from tests.unit.proxy.connected import Connected, connected

ENHANCE_YOUR_CALM = 11


async def test_an_idle_connection_is_closed() -> None:
    async with target_running() as port, connected() as pair:
        quiet = pair.server.timeouts.idle
        pair.advance(quiet - 1)
        tunnel = await pair.client.open(port)
        pair.advance(quiet + 1)
        pair.client.end(tunnel)
        await pair.client.ended(tunnel)
        pair.advance(quiet - 1)
        await pair.client.ping()
        pair.advance(2)
        assert (await pair.client.final_goaway()).error_code == 0


async def test_each_tunnel_has_its_own_deadline() -> None:
    decision = StubDecision(idle=5)
    async with target_running() as port, connected(decision) as pair:
        first = await pair.client.open(port)
        decision.idle = 9
        second = await pair.client.open(port)
        pair.advance(4)
        await pair.client.send_data(first, b"x")
        await pair.client.receive(first, 1)
        pair.advance(4)
        await pair.client.ping()
        assert (first.code, second.code) == (None, None)
        pair.advance(1)
        assert await pair.client.was_reset(first) == await pair.client.was_reset(second) == 8
        assert [why for _, _, why in decision.closed] == ["idle", "idle"]


async def test_incomplete_frames_and_heads_time_out() -> None:
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        pair.client.send(PingFrame(0).serialize()[:-1])
        await until(lambda: pair.connection._guard.incomplete)
        pair.advance(pair.server.timeouts.head - 1)
        pair.client.send(b"\0")
        await pair.client.until(lambda: pair.client.pings)
        pair.advance(2)
        pair.client.send_frames(HeadersFrame(99, data=b"abc"))
        await until(lambda: pair.connection._guard.incomplete)
        pair.client.send_frames()
        pair.advance(pair.server.timeouts.head + 1)
        assert (await pair.client.final_goaway()).error_code == ENHANCE_YOUR_CALM
        assert tunnel.code is None
        assert pair.decision.closed == [(0, 0, "client_gone")]


async def test_input_after_goaway_is_discarded() -> None:
    async with connected() as pair:
        pair.client.send_frames(DataFrame(5, data=b"x"))
        await pair.client.final_goaway()
        assert pair.server.connections
        pair.client.send(bytes(1 << 20))
        pair.client.ask("a.example:443")
        await asyncio.sleep(0.05)
        assert (pair.decision.requests, pair.connection.tunnels) == ([], 0)
        assert pair.server.connections
        pair.advance(pair.server.timeouts.linger)
        assert not pair.server.connections


async def test_a_client_that_does_not_read_responses_is_disconnected() -> None:
    decision = StubDecision()
    decision.refusals["no.example:443"] = RefusedConnect(status=403, fields=[("x", "y" * 5000)], reason="host")

    async def pour(target: object) -> None:
        with contextlib.suppress(OSError):
            while True:
                target.writer.write(bytes(1 << 16))  # type: ignore[attr-defined]
                await target.writer.drain()  # type: ignore[attr-defined]

    wide = {"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}
    async with target_running(pour) as port, connected(decision, client=wide) as pair:
        pair.client.ask(port)
        pair.client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: pair.connection._unsent)
        while pair.connection._is_active:
            pair.client.ask("no.example:443")
            await asyncio.sleep(0)
        assert b"responses are not read" in pair.connection._unsent
        pair.client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await pair.client.final_goaway()).error_code == ENHANCE_YOUR_CALM


async def test_a_client_that_stops_reading_is_disconnected() -> None:
    wide = {"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}
    payload = bytes(1 << 22)

    async def pour(target: object) -> None:
        target.writer.write(payload)  # type: ignore[attr-defined]
        await target.reader.read()  # type: ignore[attr-defined]

    async with target_running(pour) as port, connected(StubDecision(idle=5), client=wide) as pair:
        pair.client.ask(port)
        pair.client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: pair.connection._unsent)
        await asyncio.sleep(0.05)
        pair.advance(5)
        assert pair.decision.closed[0][2] == "idle"
        pair.advance(pair.server.timeouts.idle)
        assert not pair.connection._is_active
        assert pair.server.connections
        pair.advance(pair.server.timeouts.linger)
        assert not pair.server.connections
        assert pair.server.loop_state.buffered == 0


@pytest.mark.parametrize("echo", [False, True])
async def test_the_shutdown_waits_for_requests_in_flight(echo: bool) -> None:
    async with connected() as pair:
        if not echo:
            pair.client._greeted = False  # it answers nothing any more
            pair.client._handle = lambda frame: (  # type: ignore[method-assign]
                pair.client.goaways.append(frame) if frame.type == 7 else None
            )
        pair.connection.drain()
        pair.connection.drain()
        if not echo:
            await pair.client.until(lambda: pair.client.goaways)
            await asyncio.sleep(0.05)
            assert len(pair.client.goaways) == 1
            pair.advance(module._ROUND_TRIP)
        await pair.client.final_goaway()
        assert [goaway.last_stream_id for goaway in pair.client.goaways] == [WIDEST, 0]


async def test_abort_closes_tunnels() -> None:
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        pair.connection.abort()
        assert (await pair.client.final_goaway()).last_stream_id == tunnel.number
        assert tunnel.code == 8
        assert pair.decision.closed == [(0, 0, "drained")]


async def test_a_lost_client_is_noticed_when_reading() -> None:
    async with target_running() as port, connected() as pair:
        await pair.client.open(port)
        pair.client.writer.transport.abort()
        await until(lambda: not pair.server.connections)
        assert pair.decision.closed == [(0, 0, "client_gone")]
        pair.connection.ready(READ)
        pair.connection.expire()


def break_sending(pair: Connected) -> None:
    """Let the next send to the client fail."""
    real = pair.connection._socket

    def send(_frames: memoryview) -> int:
        raise BrokenPipeError

    pair.connection._socket = SimpleNamespace(  # type: ignore[assignment]
        fileno=real.fileno, close=real.close, recv_into=real.recv_into, send=send
    )


async def test_a_lost_client_is_noticed_when_writing() -> None:
    async def speak(target: Target) -> None:
        await target.reader.readexactly(1)
        target.writer.write(b"news")

    async with target_running(speak) as port, connected() as pair:
        tunnel = await pair.client.open(port)
        break_sending(pair)
        await pair.client.send_data(tunnel, b"x")
        await until(lambda: not pair.server.connections)
        assert pair.decision.closed[0][2] == "client_gone"


async def test_the_read_size_depends_on_the_share_of_data() -> None:
    async with target_running(Target.read_all) as port, connected() as pair:
        tunnel = await pair.client.open(port)
        assert pair.connection._read_size == module.TLS_RECORD_SIZE
        putting = asyncio.create_task(pair.client.send_data(tunnel, os.urandom(1 << 22)))
        await until(lambda: pair.connection._read_size == module.READ_SIZE)
        await putting
        await pair.client.ping()
        await pair.client.ping()
        assert pair.connection._read_size == module.TLS_RECORD_SIZE


async def test_blocked_streams_send_in_turn() -> None:
    async def pour(target: Target) -> None:
        while True:
            target.writer.write(bytes(1 << 18))
            await target.writer.drain()

    wide = {"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}
    async with target_running(pour) as port, connected(client=wide) as pair:
        tunnels = [await pair.client.open(port) for _ in range(4)]
        before = [len(tunnel.received) for tunnel in tunnels]
        await pair.client.until(lambda: sum(len(tunnel.received) for tunnel in tunnels) > sum(before) + (16 << 20))
        had = [len(tunnel.received) - first for tunnel, first in zip(tunnels, before, strict=True)]
        assert min(had) > sum(had) / 16


async def test_a_connection_made_during_the_shutdown_is_told_at_once() -> None:
    async with connected(draining=True) as pair:
        await pair.client.final_goaway()
        assert [goaway.last_stream_id for goaway in pair.client.goaways] == [WIDEST, 0]


async def test_each_incomplete_frame_has_its_own_deadline() -> None:
    async with connected(timeouts=TunnelTimeouts(idle=1000)) as pair:
        ping = PingFrame(0, opaque_data=b"12345678").serialize()
        pair.client.send(ping[:5])
        for number in range(1, 5):
            await until(
                lambda number=number: pair.connection._guard.incomplete and len(pair.client.pings) == number - 1
            )  # type: ignore[misc]
            pair.advance(pair.server.timeouts.head - 1)
            pair.client.send(ping[5:] + ping[:5])
        await until(lambda: len(pair.client.pings) == 4)
        assert pair.connection._is_active


class ChangingKeys:
    """A socket inside TLS that reads nothing before it has written."""

    def __init__(self, real: socket.socket, times: int) -> None:
        self.fileno, self.close, self.send = real.fileno, real.close, real.send
        self._real = real
        self.times = times

    def recv_into(self, buffer: memoryview) -> int:
        if self.times:
            self.times -= 1
            raise ssl.SSLWantWriteError
        return self._real.recv_into(buffer)


async def test_reading_resumes_after_a_key_update() -> None:
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        pair.connection._socket = ChangingKeys(pair.connection._socket, 1)  # type: ignore[assignment]
        await pair.client.send_data(tunnel, b"hello!")
        assert await pair.client.receive(tunnel, 6) == b"hello!"
        assert pair.connection._socket.times == 0  # type: ignore[attr-defined]


async def test_the_shutdown_waits_until_the_client_has_received_everything() -> None:
    """Where the socket were closed with something unread, what was not yet sent would be lost to a reset."""
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        assert pair.connection.tunnels == 1
        ending = asyncio.create_task(pair.server.drain(60))
        await pair.client.until(lambda: pair.client.goaways)
        await pair.client.send_data(tunnel, b"all of it", end=True)
        assert await pair.client.ended(tunnel) == b"all of it"
        await pair.client.final_goaway()
        assert (pair.connection.tunnels, ending.done()) == (1, False)
        pair.client.writer.close()
        assert await ending == 0
        assert pair.connection.tunnels == 0
