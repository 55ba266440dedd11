"""HTTP/2 connections: stream limits, drains, pages, and other programs as clients."""

import asyncio
import os
from collections.abc import Callable

import pytest
from hyperframe.frame import GoAwayFrame, SettingsFrame, WindowUpdateFrame

from headgate.proxy.pages import Page
from headgate.proxy.services import Timeouts
from tests.e2e.http2_client import WIDEST, bounded, http2_at
from tests.e2e.tunnels import Deciding, target_running, trusting

FIRST = 65_535
"""Bytes of a window of which nothing has been said."""
REFUSED_STREAM, CANCEL = 7, 8
GET = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")]


def test_streams_above_the_limit_are_refused(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        async with target_running() as port, http2(deciding) as (server, client):
            most = client.settings[SettingsFrame.MAX_CONCURRENT_STREAMS]
            asked = [client.ask(port) for _ in range(most)]
            assert await client.was_reset(client.ask(port)) == REFUSED_STREAM
            client.reset(asked.pop())
            await client.pinged()
            asked.append(client.ask(port))
            await client.pinged()
            assert server.tunnel_count == most
            deciding.waits.set()
            for tunnel in asked:
                assert await client.answered(tunnel) == 200

    run(check())


def test_a_drain_continues_tunnels_and_refuses_new_ones(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (server, client):
            tunnel = await client.open(port)
            ending = asyncio.create_task(server.drain(30))
            await client.until(lambda: client.goaways)
            [first] = client.goaways
            assert (first.last_stream_id, first.error_code) == (WIDEST, 0)
            refused = client.ask(port)
            assert await client.answered(refused) == 503
            assert refused.fields["retry-after"] == "7"
            assert deciding.asked[-1].draining
            payload = os.urandom(1 << 20)
            await client.put(tunnel, payload, end=True)
            assert await client.ended(tunnel) == payload
            assert await ending == 0
            last = await client.left()
            assert (last.last_stream_id, last.error_code) == (refused.number, 0)
        assert deciding.closed == [(1 << 20, 1 << 20, "ended")]

    run(check())


def test_a_drain_closes_remaining_tunnels_at_its_deadline(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding) as (server, client):
            tunnels = [await client.open(port) for _ in range(3)]
            assert await server.drain(0.2) == 3
            last = await client.left()
            assert (last.last_stream_id, last.error_code) == (tunnels[-1].number, 0)
            assert {tunnel.code for tunnel in tunnels} == {CANCEL}
        assert [why for _, _, why in deciding.closed] == ["drained"] * 3

    run(check())


def test_a_drain_does_not_wait_for_connections_without_tunnels(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with (
            target_running() as port,
            http2() as (server, client),
            http2_at(server.addresses[0], trusting()) as other,
        ):
            tunnel = await client.open(port)
            ending = asyncio.create_task(server.drain(30))
            assert (await other.left()).error_code == 0
            assert [goaway.last_stream_id for goaway in other.goaways] == [WIDEST, 0]
            client.end(tunnel)
            assert await ending == 0

    run(check())


def test_a_connection_after_goaway_closes_when_its_tunnels_end(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, http2() as (_, client):
            tunnel = await client.open(port)
            client.say(GoAwayFrame(0))
            await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 1) == b"x"
            client.end(tunnel)
            await client.ended(tunnel)
            assert (await client.left()).error_code == 0

    run(check())


def test_an_idle_client_is_disconnected(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        async with target_running() as port, http2(timeouts=Timeouts(idle=0.5)) as (_, client):
            tunnel = await client.open(port)
            await asyncio.sleep(1)
            client.end(tunnel)
            await client.ended(tunnel)
            assert (await client.left()).error_code == 0

    run(check())


def test_a_connection_above_the_limit_is_503(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        deciding = Deciding()
        async with target_running() as port, http2(deciding, connections=1) as (server, client):
            async with http2_at(server.addresses[0], trusting()) as surplus:
                assert await surplus.answered(surplus.ask(port)) == 503
                assert (await surplus.left()).error_code == 0
            assert deciding.complaints == ["connections"]
            assert await client.open(port)

    run(check())


def test_pages_are_sent_as_the_windows_allow(http2: Callable, run: Callable) -> None:
    async def check() -> None:
        body = os.urandom(200_000)
        pages = {"/feed": Page("text/csv", body), "/none": Page("text/plain", b"")}
        async with target_running() as port, http2(pages=pages, client={"generous": False}) as (server, client):
            tunnel = await client.open(port)
            asked = {path: [*GET[:2], (":path", path), GET[3]] for path in ("/feed", "/feed?x", "/none", "/other")}
            shown = client.request(asked["/feed"], ended=True)
            assert await client.answered(shown) == 200
            assert shown.fields == {"content-type": "text/csv", "content-length": "200000"}
            await client.until(lambda: len(shown.received) == FIRST)
            client.say(WindowUpdateFrame(0, window_increment=WIDEST - FIRST))
            await client.pinged()
            client.say(WindowUpdateFrame(shown.number, window_increment=WIDEST - FIRST))
            assert await client.ended(shown) == body
            again = client.request([(":method", "HEAD"), *asked["/feed?x"][1:]], ended=True)
            assert await client.ended(again) == b""
            assert again.fields == shown.fields
            assert await client.ended(client.request(asked["/none"], ended=True)) == b""
            for lines, ended in ((asked["/other"], True), (asked["/feed"], False)):
                assert await client.answered(client.request(lines, ended=ended)) == 405
            await client.put(tunnel, b"x")
            assert server.tunnel_count == 1

    run(check())


@pytest.mark.needs("nghttp", "h2load", "curl")
def test_nghttp_and_h2load_report_no_errors(http2: Callable) -> None:
    async def said(*words: str) -> str:
        pipe = asyncio.subprocess.PIPE
        started = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        output, _ = await started.communicate()
        return output.decode()

    async def check() -> None:
        async with (
            target_running() as port,
            http2(pages={"/feed": Page("text/csv", bytes(300_000))}) as (server, client),
        ):
            tunnel = await client.open(port)
            url = f"https://127.0.0.1:{server.addresses[0][1]}"
            log = await said("nghttp", "-nv", f"{url}/")
            assert ":status: 405" in log
            assert "error_code=NO_ERROR" in log
            log = await said("h2load", "-n200", "-c4", "-m20", f"{url}/feed")
            assert "200 succeeded, 0 failed" in log
            assert "(60000000) data" in log
            form = "%{http_version} %{response_code} %{size_download}"
            assert await said("curl", "-sk", "-o", "/dev/null", "-w", form, f"{url}/feed") == "2 200 300000"
            await client.put(tunnel, b"x")
            assert await client.arrived(tunnel, 1) == b"x"

    asyncio.run(bounded(check()))
