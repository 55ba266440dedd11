"""A connection's turns, deadlines and shutdown."""

import asyncio
import contextlib
import os
import socket
import ssl

import pytest
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame

from headgate.proxy.connect import RefusedConnect, TunnelLimits
from headgate.proxy.http2 import connection as module
from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.services import Timeouts
from tests.e2e.http2_client import PREFACE, WIDEST, bounded
from tests.e2e.tunnels import Deciding, Target, target_running, until
from tests.unit.proxy.http2.connected import connected

ENHANCE_YOUR_CALM = 11


def test_settings_are_sent_first() -> None:
    async def check() -> None:
        async with connected(client={"greet": False}) as both:
            await both.far.until(lambda: both.far.settings)
            assert both.far.settings == {2: 0, 3: 256, 5: 1 << 18, 6: 1 << 14}

    asyncio.run(bounded(check()))


def test_an_idle_connection_is_closed() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            quiet = both.server.timeouts.idle
            both.wait(quiet - 1)
            tunnel = await both.far.open(port)
            both.wait(quiet + 1)
            both.far.end(tunnel)
            await both.far.ended(tunnel)
            both.wait(quiet - 1)
            await both.far.pinged()
            both.wait(2)
            assert (await both.far.left()).error_code == 0

    asyncio.run(bounded(check()))


def test_each_tunnel_has_its_own_deadline() -> None:
    async def check() -> None:
        deciding = Deciding(TunnelLimits(idle=5))
        async with target_running() as port, connected(deciding) as both:
            first = await both.far.open(port)
            deciding.limits = TunnelLimits(idle=60, max_seconds=9)
            second = await both.far.open(port)
            both.wait(4)
            await both.far.put(first, b"x")
            await both.far.arrived(first, 1)
            both.wait(4)
            await both.far.pinged()
            assert (first.code, second.code) == (None, None)
            both.wait(1)
            assert await both.far.was_reset(first) == await both.far.was_reset(second) == 8
            assert [why for _, _, why in deciding.closed] == ["idle", "max_seconds"]

    asyncio.run(bounded(check()))


def test_incomplete_frames_and_heads_time_out() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            both.far.send(PingFrame(0).serialize()[:-1])
            await until(lambda: both.near._engine.incomplete_input)
            both.wait(both.server.timeouts.head - 1)
            both.far.send(b"\0")
            await both.far.until(lambda: both.far.pings)
            both.wait(2)
            both.far.say(HeadersFrame(99, data=b"abc"))
            await until(lambda: both.near._engine.incomplete_input)
            both.far.say()
            both.wait(both.server.timeouts.head + 1)
            assert (await both.far.left()).error_code == ENHANCE_YOUR_CALM
            assert tunnel.code is None
            assert both.deciding.closed == [(0, 0, "client_gone")]

    asyncio.run(bounded(check()))


def test_input_after_goaway_is_discarded() -> None:
    async def check() -> None:
        async with connected() as both:
            both.far.say(DataFrame(5, data=b"x"))
            await both.far.left()
            assert both.server.connections
            both.far.send(bytes(1 << 20))
            both.far.ask("a.example:443")
            await asyncio.sleep(0.05)
            assert (both.deciding.asked, both.near.tunnels) == ([], 0)
            assert both.server.connections
            both.wait(both.server.timeouts.linger)
            assert not both.server.connections

    asyncio.run(bounded(check()))


def test_a_client_that_does_not_read_responses_is_disconnected() -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.refuses["no.example:443"] = RefusedConnect(status=403, fields=[("x", "y" * 300)], reason="host")

        async def pour(target: object) -> None:
            with contextlib.suppress(OSError):
                while True:
                    target.writer.write(bytes(1 << 16))  # type: ignore[attr-defined]
                    await target.writer.drain()  # type: ignore[attr-defined]

        wide = {"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}
        async with target_running(pour) as port, connected(deciding, client=wide) as both:
            both.far.ask(port)
            both.far.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: both.near._send_buffer.is_blocked)
            while both.near._is_active:
                both.far.ask("no.example:443")
                await asyncio.sleep(0)
            assert len(both.near._engine.output) > 1 << 16
            both.far.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert (await both.far.left()).error_code == ENHANCE_YOUR_CALM

    asyncio.run(bounded(check()))


def test_a_client_that_stops_reading_is_disconnected() -> None:
    async def check() -> None:
        wide = {"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}
        payload = bytes(1 << 22)

        async def pour(target: object) -> None:
            target.writer.write(payload)  # type: ignore[attr-defined]
            await target.reader.read()  # type: ignore[attr-defined]

        async with target_running(pour) as port, connected(Deciding(TunnelLimits(idle=5)), client=wide) as both:
            both.far.ask(port)
            both.far.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: both.near._send_buffer.is_blocked)
            await asyncio.sleep(0.05)
            both.wait(5)
            assert both.deciding.closed[0][2] == "idle"
            both.wait(both.server.timeouts.idle)
            assert not both.near._is_active
            assert both.server.connections
            both.wait(both.server.timeouts.linger)
            assert not both.server.connections
            assert both.server.loop_state.buffered == 0

    asyncio.run(bounded(check()))


@pytest.mark.parametrize("echo", [False, True])
def test_the_shutdown_waits_for_requests_in_flight(echo: bool) -> None:
    async def check() -> None:
        async with connected() as both:
            if not echo:
                both.far._greeted = False  # it answers nothing any more
                both.far._hear = lambda frame: (  # type: ignore[method-assign]
                    both.far.goaways.append(frame) if frame.type == 7 else None
                )
            both.near.drain()
            both.near.drain()
            if not echo:
                await both.far.until(lambda: both.far.goaways)
                await asyncio.sleep(0.05)
                assert len(both.far.goaways) == 1
                both.wait(module._ROUND_TRIP)
            await both.far.left()
            assert [goaway.last_stream_id for goaway in both.far.goaways] == [WIDEST, 0]

    asyncio.run(bounded(check()))


def test_closing_twice_sends_one_goaway() -> None:
    async def check() -> None:
        async with connected() as both:
            both.far.say(DataFrame(5, data=b"x"))
            await both.far.left()
            both.near.drain()
            both.near.close(module.ErrorCode.NO_ERROR, "again")
            both.near.finish_turn()
            both.near.abort()
            both.near.abort()
            assert not both.server.connections
            assert len(both.far.goaways) == 1

    asyncio.run(bounded(check()))


def test_abort_closes_tunnels() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            both.near.abort()
            assert (await both.far.left()).last_stream_id == tunnel.number
            assert tunnel.code == 8
            assert both.deciding.closed == [(0, 0, "drained")]

    asyncio.run(bounded(check()))


def test_a_lost_client_is_noticed_when_reading() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            await both.far.open(port)
            both.far.writer.transport.abort()
            await until(lambda: not both.server.connections)
            assert both.deciding.closed == [(0, 0, "client_gone")]
            both.near.ready(READ)
            both.near.expire()

    asyncio.run(bounded(check()))


def test_a_lost_client_is_noticed_when_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async def speak(target: object) -> None:
            await target.reader.readexactly(1)  # type: ignore[attr-defined]
            target.writer.write(b"news")  # type: ignore[attr-defined]

        async with target_running(speak) as port, connected() as both:
            tunnel = await both.far.open(port)
            broken = type("Broken", (), {"send": lambda *_: (_ for _ in ()).throw(BrokenPipeError())})()
            monkeypatch.setattr(both.near._send_buffer, "_socket", broken)
            await both.far.put(tunnel, b"x")
            await until(lambda: not both.server.connections)
            assert both.deciding.closed[0][2] == "client_gone"

    asyncio.run(bounded(check()))


def test_a_lost_client_is_noticed_when_responding(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with connected() as both:
            broken = type("Broken", (), {"send": lambda *_: (_ for _ in ()).throw(BrokenPipeError())})()
            monkeypatch.setattr(both.near._send_buffer, "_socket", broken)
            both.far.say(PingFrame(0, opaque_data=b"12345678"))
            await until(lambda: not both.server.connections)

    asyncio.run(bounded(check()))


def test_the_socket_may_break_while_input_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        near, far = socket.socketpair()
        near.settimeout(0)
        far.close()
        async with connected() as both:
            both.far.say(DataFrame(5, data=b"x"))
            await both.far.left()
            both.far.writer.transport.abort()
            await until(lambda: not both.server.connections)
        near.close()

    asyncio.run(bounded(check()))


def test_the_read_size_depends_on_the_share_of_data() -> None:
    async def check() -> None:
        async with target_running(Target.swallow) as port, connected() as both:
            tunnel = await both.far.open(port)
            assert both.near._read_size == module.TLS_RECORD_SIZE
            putting = asyncio.create_task(both.far.put(tunnel, os.urandom(1 << 22)))
            await until(lambda: both.near._read_size == module.READ_SIZE)
            await putting
            await both.far.pinged()
            await both.far.pinged()
            assert both.near._read_size == module.TLS_RECORD_SIZE

    asyncio.run(bounded(check()))


def test_the_preface_has_a_deadline() -> None:
    async def check() -> None:
        async with connected(client={"greet": False}) as both:
            both.wait(both.server.timeouts.idle - 1)
            both.far.send(PREFACE[:5])
            await until(lambda: both.near._incomplete_until < float("inf"))
            both.wait(both.server.timeouts.head + 1)
            assert (await both.far.left()).error_code == ENHANCE_YOUR_CALM

    asyncio.run(bounded(check()))


def test_blocked_streams_send_in_turn() -> None:
    async def check() -> None:
        async def pour(target: Target) -> None:
            while True:
                target.writer.write(bytes(1 << 18))
                await target.writer.drain()

        wide = {"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}
        async with target_running(pour) as port, connected(client=wide) as both:
            tunnels = [await both.far.open(port) for _ in range(4)]
            before = [len(tunnel.received) for tunnel in tunnels]
            await both.far.until(lambda: sum(len(tunnel.received) for tunnel in tunnels) > sum(before) + (16 << 20))
            had = [len(tunnel.received) - first for tunnel, first in zip(tunnels, before, strict=True)]
            assert min(had) > sum(had) / 16

    asyncio.run(bounded(check()))


def test_the_socket_may_break_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            await both.far.open(port)
            real = both.near._socket

            class Broken:
                fileno, close, send = real.fileno, real.close, real.send

                def recv_into(self, _: memoryview) -> int:
                    raise ConnectionResetError

            both.near._socket = Broken()  # type: ignore[assignment]
            both.far.say(PingFrame(0, opaque_data=b"12345678"))
            await until(lambda: not both.server.connections)
            assert both.deciding.closed == [(0, 0, "client_gone")]

    asyncio.run(bounded(check()))


def test_a_connection_made_during_the_shutdown_is_told_at_once() -> None:
    async def check() -> None:
        async with connected(ending=True) as both:
            await both.far.left()
            assert [goaway.last_stream_id for goaway in both.far.goaways] == [WIDEST, 0]

    asyncio.run(bounded(check()))


def test_each_incomplete_frame_has_its_own_deadline() -> None:
    async def check() -> None:
        async with connected(timeouts=Timeouts(idle=1000)) as both:
            ping = PingFrame(0, opaque_data=b"12345678").serialize()
            both.far.send(ping[:5])
            for number in range(1, 5):
                await until(
                    lambda number=number: both.near._engine.incomplete_input and len(both.far.pings) == number - 1
                )  # type: ignore[misc]
                both.wait(both.server.timeouts.head - 1)
                both.far.send(ping[5:] + ping[:5])
            await until(lambda: len(both.far.pings) == 4)
            assert both.near._is_active

    asyncio.run(bounded(check()))


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


def test_reading_resumes_after_a_key_update() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            both.near._socket = ChangingKeys(both.near._socket, 1)  # type: ignore[assignment]
            await both.far.put(tunnel, b"hello!")
            assert await both.far.arrived(tunnel, 6) == b"hello!"
            assert both.near._socket.times == 0  # type: ignore[attr-defined]

    asyncio.run(bounded(check()))


def test_a_client_lost_during_a_key_update_is_closed() -> None:
    async def check() -> None:
        async with connected() as both:
            both.near._socket = ChangingKeys(both.near._socket, 2)  # type: ignore[assignment]
            both.near._read()
            assert both.near._events == WRITE
            both.near.finish_turn()
            both.near.ready(READ)
            assert not both.server.connections

    asyncio.run(bounded(check()))


def test_the_shutdown_waits_until_the_client_has_received_everything() -> None:
    """Where the socket were closed with something unread, what was not yet sent would be lost to a reset."""

    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            assert both.near.tunnels == 1
            ending = asyncio.create_task(both.server.drain(60))
            await both.far.until(lambda: both.far.goaways)
            await both.far.put(tunnel, b"all of it", end=True)
            assert await both.far.ended(tunnel) == b"all of it"
            await both.far.left()
            assert (both.near.tunnels, ending.done()) == (1, False)
            both.far.writer.close()
            assert await ending == 0
            assert both.near.tunnels == 0

    asyncio.run(bounded(check()))


def test_tunnels_closed_before_the_shutdown_do_not_delay_it() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            await both.far.put(tunnel, b"", end=True)
            await both.far.ended(tunnel)
            await both.far.pinged()
            assert await both.server.drain(60) == 0

    asyncio.run(bounded(check()))
