"""Pages, sent as the windows allow."""

import asyncio
import os

from hyperframe.frame import DataFrame, SettingsFrame, WindowUpdateFrame

from headgate.agent.proxy.page import Page
from tests.e2e.http2_client import WIDEST, bounded
from tests.unit.agent.proxy.http2.connected import connected

GET = [(":method", "GET"), (":scheme", "https"), (":path", "/feed"), (":authority", "a")]
BODY = os.urandom(300_000)
PAGES = {"/feed": Page("text/csv", BODY)}


def test_a_page_comes_whole() -> None:
    async def check() -> None:
        async with connected(pages=PAGES, client={"settings": {SettingsFrame.INITIAL_WINDOW_SIZE: WIDEST}}) as both:
            pages = [both.far.request(GET, ended=True) for _ in range(20)]
            for page in pages:
                assert await both.far.ended(page) == BODY
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
