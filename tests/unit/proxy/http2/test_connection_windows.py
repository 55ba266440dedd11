"""Windows of a connection and its streams, and what counts as abuse, with tunnels to targets."""

import asyncio

import pytest
from hyperframe.frame import (
    DataFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)

from headgate.proxy.http2.limits import INITIAL_WINDOW, MAX_CONNECTION_WINDOW
from headgate.proxy.net.poller import MAX_BUFFERED
from tests.e2e.http2_client import WIDEST, bounded
from tests.e2e.tunnels import Deciding, Target, target_running, until
from tests.unit.proxy.http2.connected import connected

PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 1, 3, 6


@pytest.mark.parametrize("ending", ["reset", "trailers"])
def test_no_window_update_for_a_stream_closed_in_the_same_read(ending: str) -> None:
    """9113 5.1: "An endpoint MUST NOT send frames other than PRIORITY on a closed stream." """

    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            both.far.say(DataFrame(tunnel.number, data=bytes(16_000)))
            await both.far.pinged()
            both.far.say(DataFrame(tunnel.number, data=bytes(4_000)))
            await both.far.pinged()
            assert tunnel.window == INITIAL_WINDOW  # it is opened anew after half of it, which the next frame reaches
            end = both.far.head(tunnel.number, [("more", "1")], "END_STREAM")
            last = RstStreamFrame(tunnel.number, error_code=8) if ending == "reset" else end
            both.far.say(DataFrame(tunnel.number, data=bytes(13_000)), last)
            await both.far.pinged()
            assert both.deciding.closed
            assert tunnel.window == INITIAL_WINDOW

    asyncio.run(bounded(check()))


def test_late_data_is_returned_to_the_connection_window() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            both.far.reset(tunnel)
            for _ in range(8):
                both.far.say(DataFrame(tunnel.number, data=bytes(10_000)))
                both.far.window -= 10_000
                await both.far.pinged()
            assert both.far.window > 0
            assert both.near._held == 0

    asyncio.run(bounded(check()))


def test_window_growth_is_shared_by_all_connections() -> None:
    async def check() -> None:
        async with target_running(Target.swallow) as port, connected() as both:
            tunnel = await both.far.open(port)
            for _ in range(80):
                await both.far.put(tunnel, bytes(50_000))
                await both.far.pinged()
            shared = both.near._buffers
            assert shared.allowed_growth < MAX_CONNECTION_WINDOW or both.far.window > INITIAL_WINDOW
            granted = shared.window_growth
            assert granted == MAX_CONNECTION_WINDOW - INITIAL_WINDOW
            both.far.writer.close()
            await until(lambda: not both.server.connections)
            assert shared.window_growth == 0

    asyncio.run(bounded(check()))


def test_windows_do_not_grow_while_much_is_buffered() -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running(Target.swallow) as port, connected(deciding) as both:
            tunnel = await both.far.open(port)
            both.server.loop_state.buffered += MAX_BUFFERED
            for _ in range(10):
                await both.far.put(tunnel, bytes(50_000))
                await both.far.pinged()
            assert max(tunnel.window, both.far.window) <= INITIAL_WINDOW
            deciding.waits = asyncio.Event()
            early = both.far.ask(port)
            await both.far.put(early, bytes(both.far.window))
            await both.far.pinged()
            assert both.far.window < INITIAL_WINDOW // 2
            both.server.loop_state.buffered -= MAX_BUFFERED
            deciding.waits.set()
            await both.far.until(lambda: both.far.window > INITIAL_WINDOW // 2)

    asyncio.run(bounded(check()))


def test_data_frames_allow_window_updates() -> None:
    async def check() -> None:
        async with target_running() as port, connected(client={"generous": False}) as both:
            both.far.say(WindowUpdateFrame(0, window_increment=WIDEST - INITIAL_WINDOW))
            tunnel = await both.far.open(port)
            for _ in range(1500):
                await both.far.put(tunnel, b"x")
                await both.far.arrived(tunnel, 1)
                both.far.say(WindowUpdateFrame(tunnel.number, window_increment=1))
            await both.far.pinged()

    asyncio.run(bounded(check()))


def test_padding_is_flow_controlled() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            tunnel = await both.far.open(port)
            for number in range(600):
                await both.far.until(lambda: min(tunnel.window, both.far.window) >= 257)
                tunnel.window -= 257
                both.far.window -= 257
                both.far.say(DataFrame(tunnel.number, data=b"%d" % (number % 10), pad_length=255, flags=["PADDED"]))
            assert await both.far.arrived(tunnel, 600) == b"0123456789" * 60

    asyncio.run(bounded(check()))


def test_resets_of_used_tunnels_are_not_limited() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            for _ in range(300):
                tunnel = await both.far.open(port)
                await both.far.put(tunnel, b"x")
                await both.far.arrived(tunnel, 1)
                both.far.reset(tunnel)
            await both.far.pinged()
            for _ in range(101):
                both.far.reset(await both.far.open(port))
            assert b"too many resets" in (await both.far.left()).additional_data

    asyncio.run(bounded(check()))


def test_early_data_does_not_make_a_tunnel_used() -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with connected(deciding) as both:
            for _ in range(101):
                asked = both.far.ask("a.example:443")
                await both.far.put(asked, b"x")
                await both.far.pinged()
                both.far.reset(asked)
            assert b"too many resets" in (await both.far.left()).additional_data

    asyncio.run(bounded(check()))
