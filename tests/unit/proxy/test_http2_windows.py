"""Windows of a connection and its streams, and what counts as abuse, with tunnels to targets."""

import asyncio

import pytest
from hyperframe.frame import DataFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from headgate.proxy.connect import RefusedConnect
from headgate.proxy.limits import INITIAL_WINDOW, MAX_CONNECTION_WINDOW
from headgate.proxy.poller import MAX_BUFFERED
from tests.e2e.http2_client import WIDEST
from tests.e2e.tunnels import StubDecision, Target, target_running, until
from tests.unit.proxy.connected import connected

PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR = 1, 3, 6


@pytest.mark.parametrize("ending", ["reset", "trailers"])
async def test_no_window_update_for_a_stream_closed_in_the_same_read(ending: str) -> None:
    """9113 5.1: "An endpoint MUST NOT send frames other than PRIORITY on a closed stream." """
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        pair.client.send_frames(DataFrame(tunnel.number, data=bytes(16_000)))
        await pair.client.ping()
        pair.client.send_frames(DataFrame(tunnel.number, data=bytes(4_000)))
        await pair.client.ping()
        assert tunnel.window == INITIAL_WINDOW  # it is opened anew after half of it, which the next frame reaches
        end = pair.client.head(tunnel.number, [("more", "1")], "END_STREAM")
        last = RstStreamFrame(tunnel.number, error_code=8) if ending == "reset" else end
        pair.client.send_frames(DataFrame(tunnel.number, data=bytes(13_000)), last)
        await pair.client.ping()
        assert pair.decision.closed
        assert tunnel.window == INITIAL_WINDOW


async def test_late_data_is_returned_to_the_connection_window() -> None:
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        pair.client.reset(tunnel)
        for _ in range(8):
            pair.client.send_frames(DataFrame(tunnel.number, data=bytes(10_000)))
            pair.client.window -= 10_000
            await pair.client.ping()
        assert pair.client.window > 0
        assert pair.connection.held == 0


async def test_window_growth_is_shared_by_all_connections() -> None:
    async with target_running(Target.read_all) as port, connected() as pair:
        tunnel = await pair.client.open(port)
        for _ in range(80):
            await pair.client.send_data(tunnel, bytes(50_000))
            await pair.client.ping()
        shared = pair.server.loop_state
        assert shared.window_growth == MAX_CONNECTION_WINDOW - INITIAL_WINDOW
        assert pair.client.window > INITIAL_WINDOW
        pair.client.writer.close()
        await until(lambda: not pair.server.connections)
        assert shared.window_growth == 0


async def test_windows_do_not_grow_while_much_is_buffered() -> None:
    decision = StubDecision()
    async with target_running(Target.read_all) as port, connected(decision) as pair:
        tunnel = await pair.client.open(port)
        pair.server.loop_state.buffered += MAX_BUFFERED
        for _ in range(10):
            await pair.client.send_data(tunnel, bytes(50_000))
            await pair.client.ping()
        assert max(tunnel.window, pair.client.window) <= INITIAL_WINDOW
        decision.gate = asyncio.Event()
        early = pair.client.ask(port)
        await pair.client.send_data(early, bytes(pair.client.window))
        await pair.client.ping()
        assert pair.client.window < INITIAL_WINDOW // 2
        pair.server.loop_state.buffered -= MAX_BUFFERED
        decision.gate.set()
        await pair.client.until(lambda: pair.client.window > INITIAL_WINDOW // 2)


async def test_data_frames_allow_window_updates() -> None:
    async with target_running() as port, connected(client={"updates_windows": False}) as pair:
        pair.client.send_frames(WindowUpdateFrame(0, window_increment=WIDEST - INITIAL_WINDOW))
        tunnel = await pair.client.open(port)
        for _ in range(1500):
            await pair.client.send_data(tunnel, b"x")
            await pair.client.receive(tunnel, 1)
            pair.client.send_frames(WindowUpdateFrame(tunnel.number, window_increment=1))
        await pair.client.ping()


async def test_padding_is_flow_controlled() -> None:
    async with target_running() as port, connected() as pair:
        tunnel = await pair.client.open(port)
        for number in range(600):
            await pair.client.until(lambda: min(tunnel.window, pair.client.window) >= 257)
            tunnel.window -= 257
            pair.client.window -= 257
            pair.client.send_frames(
                DataFrame(tunnel.number, data=b"%d" % (number % 10), pad_length=255, flags=["PADDED"])
            )
        assert await pair.client.receive(tunnel, 600) == b"0123456789" * 60


async def test_resets_of_used_tunnels_are_not_limited() -> None:
    async with target_running() as port, connected() as pair:
        for _ in range(300):
            tunnel = await pair.client.open(port)
            await pair.client.send_data(tunnel, b"x")
            await pair.client.receive(tunnel, 1)
            pair.client.reset(tunnel)
        await pair.client.ping()
        for _ in range(101):
            pair.client.reset(await pair.client.open(port))
        assert b"too many resets" in (await pair.client.final_goaway()).additional_data


async def test_early_data_does_not_make_a_tunnel_used() -> None:
    decision = StubDecision()
    decision.gate = asyncio.Event()
    async with connected(decision) as pair:
        for _ in range(101):
            asked = pair.client.ask("a.example:443")
            await pair.client.send_data(asked, b"x")
            await pair.client.ping()
            pair.client.reset(asked)
        assert b"too many resets" in (await pair.client.final_goaway()).additional_data


async def test_requests_that_are_refused_are_limited_with_and_without_a_decision() -> None:
    heads = [(":method", "GET"), (":scheme", "https"), (":path", "/")], [(":method", "CONNECT"), (":authority", "no:1")]
    decision = StubDecision()
    decision.refusals["no:1"] = RefusedConnect(status=403, reason="host")
    async with connected(decision) as pair:
        for number in range(101):
            refused = pair.client.request(heads[number % 2], ended=True)
            await pair.client.until(lambda refused=refused: refused.status or pair.client.goaways)  # type: ignore[misc]
        assert refused.status == 405
        assert b"too many failed requests" in (await pair.client.final_goaway()).additional_data


async def test_settings_of_a_client_reserve_little_memory() -> None:
    """Unknown settings are ignored, and our header table may be smaller than the client allows (9113, 6.5.2)."""
    async with connected() as pair:
        pair.client.send_frames(SettingsFrame(0, settings=dict.fromkeys((1, *range(100, 160)), 1 << 30)))
        await pair.client.ping()
        h2 = pair.connection._h2
        assert h2.encoder.header_table_size == 4096
        assert not set(range(100, 160)) & set(h2.remote_settings)
