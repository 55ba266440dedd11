"""Pages are sent as the windows allow."""

import asyncio
import os

import pytest
from hyperframe.frame import DataFrame, SettingsFrame, WindowUpdateFrame

from headgate.proxy.http2.frames import MAX_PAYLOAD_SIZE
from headgate.proxy.page import Page
from tests.e2e.http2_client import WIDEST, bounded
from tests.e2e.tunnels import until
from tests.unit.proxy.http2.connected import connected

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
