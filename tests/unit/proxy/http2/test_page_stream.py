"""Pages, sent as the windows allow."""

import asyncio
import os

import pytest
from hyperframe.frame import DataFrame, SettingsFrame, WindowUpdateFrame

from headgate.proxy.http2.frames import LONGEST_PAYLOAD
from headgate.proxy.page import Page
from tests.e2e.http2_client import WIDEST, bounded
from tests.e2e.tunnels import until
from tests.unit.proxy.http2.connected import connected

GET = [(":method", "GET"), (":scheme", "https"), (":path", "/feed"), (":authority", "a")]
BODY = os.urandom(300_000)
PAGES = {"/feed": Page("text/csv", BODY)}


def test_a_page_comes_whole() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}) as both:
            pages = [both.far.request(GET, ended=True) for _ in range(20)]
            for page in pages:
                assert await both.far.ended(page) == BODY
                assert page.frames < 40  # of up to 16 KiB, the end among them: none is empty
            assert (both.near.busy, both.server.relay.waiting) == (0, 0)

    asyncio.run(bounded(check()))


def test_a_page_goes_on_when_a_window_is_opened() -> None:
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


def test_a_page_that_is_not_read_is_given_up() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            await both.far.until(lambda: len(page.received) == 65_535)
            both.wait(both.server.patience.quiet - 1)
            for stream in (0, page.number):
                both.far.say(WindowUpdateFrame(stream, window_increment=1))
            await both.far.until(lambda: len(page.received) == 65_536)
            both.wait(both.server.patience.quiet - 1)
            await both.far.pinged()
            assert page.code is None
            both.wait(2)
            assert await both.far.was_reset(page) == 8

    asyncio.run(bounded(check()))


@pytest.mark.parametrize("rest", [2 * LONGEST_PAYLOAD, LONGEST_PAYLOAD])
def test_a_client_that_is_lost_while_a_page_is_sent_gets_nothing_more_and_leaves_nothing_behind(rest: int) -> None:
    """The first write that fails tells of the loss, be it the last of the page or not."""

    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            await both.far.until(lambda: len(page.received) == 65_535)
            for stream in (0, page.number):
                both.far.say(WindowUpdateFrame(stream, window_increment=len(BODY) - rest - 65_535))
            await both.far.until(lambda: len(page.received) == len(BODY) - rest)
            [shown] = both.near.streams.values()
            both.far.writer.transport.abort()
            while both.far.writer.transport.get_extra_info("socket").fileno() != -1:
                await asyncio.sleep(0)
                assert both.near.streams, "the loss was read, not written into"
            both.near.window = shown.window = len(BODY)
            shown.resume()
            assert (both.near.closing, shown.over, both.near.streams) == (True, True, {})
            assert both.near.window == len(BODY) - LONGEST_PAYLOAD  # nothing was sent after the one that failed
            assert (bytes(both.near.outlet.said), both.server.relay.waiting, both.near.held) == (b"", 0, 0)
            assert not both.server.connections

    asyncio.run(bounded(check()))


def test_a_page_whose_client_is_lost_while_it_waits_to_be_sent_is_let_go() -> None:
    async def check() -> None:
        settings = {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}
        async with connected(pages={"/feed": Page("text/csv", bytes(1 << 24))}, client={"settings": settings}) as both:
            both.far.writer.transport.pause_reading()
            both.far.request(GET, ended=True)
            await until(lambda: both.near.outlet.waits)
            assert both.server.relay.waiting > 0
            both.far.writer.transport.abort()
            await until(lambda: not both.server.connections)
            assert (both.near.streams, both.server.relay.waiting) == ({}, 0)
            assert not both.near.outlet.waits

    asyncio.run(bounded(check()))


def test_a_page_is_over_when_the_client_says_more() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"generous": False}) as both:
            page = both.far.request(GET, ended=True)
            await both.far.until(lambda: len(page.received) == 65_535)
            assert (both.near.busy, len(both.near.streams)) == (0, 1)  # it is no tunnel
            both.far.say(DataFrame(page.number, data=b"x"))
            assert await both.far.was_reset(page) == 5  # STREAM_CLOSED
            assert both.near.busy == 0

    asyncio.run(bounded(check()))
