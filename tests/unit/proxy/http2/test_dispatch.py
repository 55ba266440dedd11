"""Requests: decisions, refusals and pages."""

import asyncio

import pytest
from hyperframe.frame import RstStreamFrame

from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.http2.engine import MAX_STREAMS
from headgate.proxy.page import Page
from tests.e2e.http2_client import bounded
from tests.e2e.tunnels import Deciding, target_running, until
from tests.unit.proxy.http2.connected import PEER, connected

GET = [(":method", "GET"), (":scheme", "https"), (":path", "/feed"), (":authority", "a")]


def test_the_decision_gets_the_whole_request() -> None:
    async def check() -> None:
        async with target_running() as port, connected() as both:
            await both.far.open(port, ("x", "é"), ("x", "z"))
            await both.far.open(port)
        first, second = both.deciding.asked
        assert first == ConnectRequest(
            authority=f"a.example:{port}",
            fields=[("x", "Ã©"), ("x", "z")],
            peer=PEER,
            protocol="h2",
            head_bytes=first.head_bytes,
        )
        assert first.head_bytes > second.head_bytes > 9  # which HPACK knows already

    asyncio.run(bounded(check()))


def test_the_decision_knows_of_the_shutdown() -> None:
    async def check() -> None:
        async with connected() as both:
            both.server.draining = True
            refused = both.far.ask("a.example:443")
            assert await both.far.answered(refused) == 503
            assert both.deciding.asked[0].draining

    asyncio.run(bounded(check()))


@pytest.mark.parametrize("ended", [False, True])
def test_a_refused_stream_is_closed_at_once(ended: bool) -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.refuses["no.example:443"] = RefusedConnect(status=403, reason="host")
        async with connected(deciding) as both:
            for _ in range(2 * MAX_STREAMS):
                refused = both.far.ask("no.example:443", ended=ended)
                assert await both.far.answered(refused) == 403
                assert both.near.tunnels == 0
            await both.far.pinged()
            assert refused.code == (None if ended else 0)

    asyncio.run(bounded(check()))


def test_a_stream_ended_during_the_decision_is_not_reset() -> None:
    async def check() -> None:
        deciding = Deciding()
        deciding.waits = asyncio.Event()
        deciding.refuses["no.example:443"] = RefusedConnect(status=403, reason="host")
        async with connected(deciding) as both:
            refused = both.far.ask("no.example:443")
            both.far.end(refused)
            await both.far.pinged()
            deciding.waits.set()
            assert await both.far.answered(refused) == 403
            await both.far.pinged()
            assert refused.code is None

    asyncio.run(bounded(check()))


def test_a_surplus_connection_is_refused_and_closed() -> None:
    async def check() -> None:
        async with connected(surplus=True) as both:
            refused = both.far.ask("a.example:443")
            assert await both.far.answered(refused) == 503
            assert (await both.far.left()).last_stream_id == refused.number
            assert (both.deciding.complaints, both.deciding.asked) == (["connections"], [])

    asyncio.run(bounded(check()))


def test_a_cancelled_decision_resets_the_stream() -> None:
    async def check() -> None:
        deciding = Deciding()

        async def cancelled(_: ConnectRequest) -> AcceptedConnect | RefusedConnect:
            raise asyncio.CancelledError

        deciding.open = cancelled  # type: ignore[method-assign]
        async with connected(deciding) as both:
            assert await both.far.was_reset(both.far.ask("a.example:443")) == 2  # INTERNAL_ERROR

    asyncio.run(bounded(check()))


def test_a_refusal_for_a_closed_stream_is_not_sent() -> None:
    async def check() -> None:
        deciding = Deciding()
        refused = RefusedConnect(status=403, reason="host")

        async def stubborn(_: ConnectRequest) -> AcceptedConnect | RefusedConnect:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            return refused

        deciding.open = stubborn  # type: ignore[method-assign]
        async with connected(deciding) as both:
            asked = both.far.ask("a.example:443")
            await until(lambda: deciding.asked)
            both.far.say(RstStreamFrame(asked.number))
            await both.far.pinged()
            assert asked.status == 0

    asyncio.run(bounded(check()))


@pytest.mark.parametrize(
    ("lines", "ended", "status", "length"),
    [
        (GET, True, 200, 5),
        ([(":method", "HEAD"), *GET[1:]], True, 200, 0),
        (GET, False, 405, 0),
        ([(":method", "POST"), *GET[1:]], True, 405, 0),
        ([*GET[:2], (":path", "/"), GET[3]], True, 405, 0),
    ],
)
def test_pages_are_served_for_get_and_head_without_a_body(lines: list, ended: bool, status: int, length: int) -> None:
    async def check() -> None:
        async with connected(pages={"/feed": Page("text/csv", b"a,b,c")}) as both:
            asked = both.far.request(lines, ended=ended)
            assert await both.far.answered(asked) == status
            assert len(await both.far.ended(asked)) == length
            await both.far.pinged()
            assert both.near.tunnels == 0

    asyncio.run(bounded(check()))


def test_a_failed_decision_is_reported_and_resets_the_stream() -> None:
    async def check() -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))
        async with connected() as both:
            assert await both.far.was_reset(both.far.ask("a.example:none")) == 2  # INTERNAL_ERROR
        assert told == ["a decision failed"]

    asyncio.run(bounded(check()))
