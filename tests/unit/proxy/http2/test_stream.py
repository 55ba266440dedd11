"""Streams: a tunnel and its target, and pages that are sent as the windows allow."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hyperframe.frame import DataFrame, SettingsFrame, WindowUpdateFrame

from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect, TunnelLimits
from headgate.proxy.http2.frames import MAX_PAYLOAD_SIZE
from headgate.proxy.http2.limits import INITIAL_WINDOW
from headgate.proxy.net.poller import READ
from headgate.proxy.pages import Page
from tests.e2e.http2_client import WIDEST, Tunnel, bounded
from tests.e2e.tunnels import Deciding, until
from tests.unit.proxy.http2.connected import Both, connected

CONNECT_ERROR = 10


class AtHand(Deciding):
    """Leads every tunnel to the same socket, whose other end is at hand; a `narrow` one is soon full."""

    def __init__(self, limits: TunnelLimits | None = None, *, narrow: bool = False) -> None:
        super().__init__(limits)
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
        return AcceptedConnect(socket=self._way, on_closed=lambda *told: self.closed.append(told), limits=self.limits)

    async def heard(self, count: int) -> bytes:
        """Read so much at the target."""
        found = b""
        while len(found) < count:
            piece = await asyncio.get_running_loop().sock_recv(self.target, count - len(found))
            assert piece
            found += piece
        return found

    async def heard_end(self) -> bool:
        """Read the end."""
        return await asyncio.get_running_loop().sock_recv(self.target, 1) == b""

    def slam(self) -> None:
        """Reset."""
        self.target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.target.close()


@asynccontextmanager
async def tunnelled(deciding: AtHand | None = None, **settings: object) -> AsyncIterator[tuple[Both, AtHand, Tunnel]]:
    deciding = deciding or AtHand()
    try:
        async with connected(deciding, **settings) as both:
            yield both, deciding, await both.far.open("a.example:443")
    finally:
        deciding.target.close()


async def filled(both: Both, tunnel: Tunnel) -> bytes:
    """Send until something waits; returns what was sent."""
    sent = b""
    while not both.near._held:
        piece = os.urandom(min(tunnel.window, 20_000))
        sent += piece
        await both.far.put(tunnel, piece)
        await both.far.pinged()
    return sent


def test_many_small_frames_are_forwarded_in_order() -> None:
    async def check() -> None:
        async with tunnelled() as (both, deciding, tunnel):
            pieces = [bytes([number % 256]) * (number % 7 + 1) for number in range(2000)]
            both.far.say(*(DataFrame(tunnel.number, data=piece) for piece in pieces))
            assert await deciding.heard(sum(map(len, pieces))) == b"".join(pieces)

    asyncio.run(bounded(check()))


def test_buffered_data_is_forwarded_in_order() -> None:
    async def check() -> None:
        deciding = AtHand(narrow=True)
        async with tunnelled(deciding) as (both, _, tunnel):
            sent = await filled(both, tunnel)
            more = os.urandom(5000)
            await both.far.put(tunnel, more, end=True)
            await both.far.pinged()
            assert both.near._held == both.server.loop_state.buffered > 5000
            assert await deciding.heard(len(sent) + 5000) == sent + more
            assert await deciding.heard_end()
            assert (both.near._held, both.server.loop_state.buffered) == (0, 0)

    asyncio.run(bounded(check()))


def test_unforwarded_bytes_do_not_count() -> None:
    async def check() -> None:
        deciding = AtHand(narrow=True)
        async with tunnelled(deciding) as (both, _, tunnel):
            sent = await filled(both, tunnel)
            waiting = both.near._held
            both.far.reset(tunnel)
            await both.far.pinged()
            assert await deciding.heard(len(sent) - waiting) == sent[: len(sent) - waiting]
            assert await deciding.heard_end()
            assert deciding.closed == [(0, len(sent) - waiting, "client_gone")]
            assert both.server.loop_state.buffered == 0

    asyncio.run(bounded(check()))


def test_a_reset_is_passed_on_as_a_reset() -> None:
    async def check() -> None:
        async with tunnelled() as (both, deciding, tunnel):
            both.far.reset(tunnel)
            with pytest.raises(ConnectionResetError):
                await deciding.heard(1)
            assert deciding.closed == [(0, 0, "client_gone")]

    asyncio.run(bounded(check()))


def test_a_target_lost_while_data_is_buffered() -> None:
    async def check() -> None:
        deciding = AtHand(narrow=True)
        async with tunnelled(deciding) as (both, _, tunnel):
            await filled(both, tunnel)
            deciding.target.close()
            assert await both.far.was_reset(tunnel) == CONNECT_ERROR
            assert deciding.closed[0][2] == "target_gone"
            assert both.server.loop_state.buffered == 0

    asyncio.run(bounded(check()))


def test_a_target_lost_when_writing() -> None:
    async def check() -> None:
        async with tunnelled() as (both, deciding, tunnel):
            [stream] = both.near._streams.values()
            both.server.loop_state.poller.unregister(stream._descriptor)  # or its error would be told first
            stream._registered = False
            stream._events = 0
            deciding.slam()
            await asyncio.sleep(0.01)
            both.far.say(DataFrame(tunnel.number, data=b"x"))
            assert await both.far.was_reset(tunnel) == CONNECT_ERROR
            assert deciding.closed == [(0, 0, "target_gone")] or deciding.closed == [(0, 1, "target_gone")]

    asyncio.run(bounded(check()))


def test_a_target_lost_while_it_is_not_read() -> None:
    async def check() -> None:
        async with tunnelled(client={"generous": False}) as (both, deciding, tunnel):
            deciding.target.send(bytes(100_000))
            await both.far.until(lambda: len(tunnel.received) == 65_535)
            deciding.slam()
            assert await both.far.was_reset(tunnel) == CONNECT_ERROR

    asyncio.run(bounded(check()))


def test_a_hangup_with_unread_data_is_not_reported_again() -> None:
    async def check() -> None:
        async with tunnelled(client={"generous": False}) as (both, deciding, tunnel):
            payload = os.urandom(100_000)
            deciding.target.send(payload)
            deciding.target.shutdown(socket.SHUT_WR)
            await both.far.until(lambda: len(tunnel.received) == 65_535)
            both.far.end(tunnel)
            assert await deciding.heard_end()
            [stream] = both.near._streams.values()
            await until(lambda: not stream._registered)  # it would be told of again and again
            for number in (0, tunnel.number):
                both.far.say(WindowUpdateFrame(number, window_increment=100_000))
            assert await both.far.ended(tunnel) == payload
            assert deciding.closed == [(100_000, 0, "ended")]

    asyncio.run(bounded(check()))


def test_the_targets_end_follows_its_last_byte() -> None:
    async def check() -> None:
        async with tunnelled() as (both, deciding, tunnel):
            deciding.target.send(b"last words")
            deciding.target.shutdown(socket.SHUT_WR)
            assert await both.far.ended(tunnel) == b"last words"
            await both.far.put(tunnel, b"thanks")
            assert await deciding.heard(6) == b"thanks"
            assert deciding.closed == []
            both.far.end(tunnel)
            await until(lambda: deciding.closed)
            assert deciding.closed == [(10, 6, "ended")]

    asyncio.run(bounded(check()))


def test_a_spurious_read_does_nothing() -> None:
    async def check() -> None:
        async with tunnelled() as (both, deciding, tunnel):
            [stream] = both.near._streams.values()
            stream.ready(READ)
            stream.resume()
            stream._flush()
            deciding.target.send(b"x")
            assert await both.far.arrived(tunnel, 1) == b"x"

    asyncio.run(bounded(check()))


@pytest.mark.parametrize(
    ("limits", "up", "down", "why"),
    [
        (TunnelLimits(max_bytes=1000), 1000, 0, None),
        (TunnelLimits(max_bytes=1000), 1001, 0, "max_bytes"),
        (TunnelLimits(max_bytes=1000), 400, 600, None),
        (TunnelLimits(max_bytes=1000), 400, 601, "max_bytes"),
        (TunnelLimits(byte_ratio=1), 16_384, 0, None),
        (TunnelLimits(byte_ratio=1), 26_384, 10_000, None),
        (TunnelLimits(byte_ratio=1), 26_385, 10_000, "byte_ratio"),
        (TunnelLimits(byte_ratio=1), 30_000, 0, "byte_ratio"),
    ],
)
def test_limits_close_a_tunnel(limits: TunnelLimits, up: int, down: int, why: str | None) -> None:
    async def check() -> None:
        async with tunnelled(AtHand(limits)) as (both, deciding, tunnel):
            if down:
                deciding.target.send(bytes(down))
                await both.far.until(lambda: tunnel.received or tunnel.code is not None)
            for start in range(0, up, 10_000):
                both.far.say(DataFrame(tunnel.number, data=bytes(min(10_000, up - start))))
                await both.far.pinged()
            await both.far.pinged()
            assert [told for _, _, told in deciding.closed] == ([] if why is None else [why])
            if why == "max_bytes":
                assert sum(deciding.closed[0][:2]) <= 1000

    asyncio.run(bounded(check()))


def test_a_stream_is_closed_once() -> None:
    async def check() -> None:
        async with tunnelled() as (both, deciding, tunnel):
            [stream] = both.near._streams.values()
            stream.close("idle")
            stream.close("drained")
            both.near.finish_turn()
            assert await both.far.was_reset(tunnel) == 8
            assert deciding.closed == [(0, 0, "idle")]

    asyncio.run(bounded(check()))


@pytest.mark.parametrize("early", [b"early", b""])
def test_early_data_and_its_end_are_forwarded(early: bytes) -> None:
    async def check() -> None:
        deciding = AtHand()
        deciding.waits = asyncio.Event()
        async with connected(deciding) as both:
            tunnel = both.far.ask("a.example:443", ended=not early)
            if early:
                await both.far.put(tunnel, early, end=True)
            other = both.far.ask("a.example:443")
            both.far.reset(other)
            await both.far.pinged()
            deciding.waits.set()
            assert await both.far.answered(tunnel) == 200
            assert await deciding.heard(len(early)) == early
            assert await deciding.heard_end()
            deciding.target.close()
            await both.far.ended(tunnel)
            assert deciding.closed == [(0, len(early), "ended")]

    asyncio.run(bounded(check()))


def test_data_is_forwarded_after_the_targets_end() -> None:
    async def check() -> None:
        deciding = AtHand(narrow=True)
        async with tunnelled(deciding) as (both, _, tunnel):
            sent = await filled(both, tunnel)
            both.far.end(tunnel)
            deciding.target.shutdown(socket.SHUT_WR)
            await both.far.ended(tunnel)
            assert deciding.closed == []
            assert await deciding.heard(len(sent)) == sent
            assert await deciding.heard_end()
            assert deciding.closed == [(0, len(sent), "ended")]

    asyncio.run(bounded(check()))


def test_a_slow_target_keeps_its_tunnel() -> None:
    async def check() -> None:
        deciding = AtHand(TunnelLimits(idle=10), narrow=True)
        async with tunnelled(deciding) as (both, _, tunnel):
            await filled(both, tunnel)
            while both.near._held < 40_000:
                await both.far.put(tunnel, bytes(5000))
                await both.far.pinged()
            for _ in range(3):
                both.wait(9)
                before = both.near._held
                while both.near._held == before:
                    await deciding.heard(1000)
                    await asyncio.sleep(0.001)
            assert deciding.closed == []
            both.wait(10)
            assert deciding.closed[0][2] == "idle"
            assert await both.far.was_reset(tunnel) == 8

    asyncio.run(bounded(check()))


def test_a_slow_target_holds_no_more_than_the_first_window() -> None:
    async def check() -> None:
        deciding = AtHand(narrow=True)
        async with tunnelled(deciding) as (both, _, tunnel):
            for _ in range(60):
                await both.far.put(tunnel, bytes(min(tunnel.window, 10_000)))
                await both.far.pinged()
                if not tunnel.window:
                    await deciding.heard(5000)
            assert 0 < both.near._held <= INITIAL_WINDOW
            assert both.near._engine.streams[tunnel.number].receive_window.limit == INITIAL_WINDOW

    asyncio.run(bounded(check()))


GET = [(":method", "GET"), (":scheme", "https"), (":path", "/feed"), (":authority", "a")]
BODY = os.urandom(300_000)
PAGES = {"/feed": Page("text/csv", BODY)}


def test_a_page_arrives_complete() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}) as both:
            pages = [both.far.request(GET, ended=True) for _ in range(20)]
            for page in pages:
                assert await both.far.ended(page) == BODY
                assert page.frames < 40  # of up to 16 KiB, the end among them: none is empty
            assert (both.near.tunnels, both.server.loop_state.buffered) == (0, 0)

    asyncio.run(bounded(check()))


def test_a_page_continues_after_a_window_update() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            for total in (65_535, 65_536, 100_000, 300_000):
                for stream in (0, page.number):
                    if total > 65_535:
                        both.far.say(WindowUpdateFrame(stream, window_increment=total - len(page.received)))
                await both.far.until(lambda total=total: len(page.received) == total)  # type: ignore[misc]
            assert await both.far.ended(page) == BODY

    asyncio.run(bounded(check()))


def test_a_page_that_is_not_read_times_out() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            await both.far.until(lambda: len(page.received) == 65_535)
            both.wait(both.server.timeouts.idle - 1)
            for stream in (0, page.number):
                both.far.say(WindowUpdateFrame(stream, window_increment=1))
            await both.far.until(lambda: len(page.received) == 65_536)
            both.wait(both.server.timeouts.idle - 1)
            await both.far.pinged()
            assert page.code is None
            both.wait(2)
            assert await both.far.was_reset(page) == 8

    asyncio.run(bounded(check()))


@pytest.mark.parametrize("rest", [2 * MAX_PAYLOAD_SIZE, MAX_PAYLOAD_SIZE])
def test_a_client_lost_during_a_page_leaves_nothing_behind(rest: int) -> None:
    """The first write that fails tells of the loss, be it the last of the page or not."""

    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            await both.far.until(lambda: len(page.received) == 65_535)
            for stream in (0, page.number):
                both.far.say(WindowUpdateFrame(stream, window_increment=len(BODY) - rest - 65_535))
            await both.far.until(lambda: len(page.received) == len(BODY) - rest)
            [shown] = both.near._streams.values()
            both.far.writer.transport.abort()
            while both.far.writer.transport.get_extra_info("socket").fileno() != -1:
                await asyncio.sleep(0)
                assert both.near._streams, "the loss was read, not written into"
            both.near._engine.send_window = both.near._engine.streams[page.number].send_window = len(BODY)
            shown.resume()
            assert (not both.near._is_active, shown.closed, both.near._streams) == (True, True, {})
            # Nothing was sent after the frame that failed.
            assert both.near._engine.send_window == len(BODY) - MAX_PAYLOAD_SIZE
            assert (bytes(both.near._engine.output), both.server.loop_state.buffered, both.near._held) == (b"", 0, 0)
            assert not both.server.connections

    asyncio.run(bounded(check()))


def test_a_buffered_page_is_dropped_with_its_client() -> None:
    async def check() -> None:
        settings = {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}
        async with connected(pages={"/feed": Page("text/csv", bytes(1 << 24))}, client={"settings": settings}) as both:
            both.far.writer.transport.pause_reading()
            both.far.request(GET, ended=True)
            await until(lambda: both.near._send_buffer.is_blocked)
            assert both.server.loop_state.buffered > 0
            both.far.writer.transport.abort()
            await until(lambda: not both.server.connections)
            assert (both.near._streams, both.server.loop_state.buffered) == ({}, 0)
            assert not both.near._send_buffer.is_blocked

    asyncio.run(bounded(check()))


def test_data_after_the_request_resets_a_page() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            await both.far.until(lambda: len(page.received) == 65_535)
            assert (both.near.tunnels, len(both.near._streams)) == (0, 1)  # it is no tunnel
            both.far.say(DataFrame(page.number, data=b"x"))
            assert await both.far.was_reset(page) == 5  # STREAM_CLOSED
            assert both.near.tunnels == 0

    asyncio.run(bounded(check()))
