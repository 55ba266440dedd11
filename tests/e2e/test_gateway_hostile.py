"""Nothing ambiguous is forwarded: every row of the table, whole and byte by byte, against a recording origin."""

import re
from collections.abc import Callable

import pytest

from headgate.config.tree import Bounds
from tests.e2e.hostile import BODIES, HEADS, MARKER
from tests.e2e.scripted import agent_at, served, until


def statuses(answers: bytes) -> list[int]:
    """List the status of every response there is."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answers)]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("step", [0, 1])
def test_a_wrong_head_reaches_nobody(name: str, step: int, run: Callable) -> None:
    message, status = HEADS[name]
    if step and len(message) > 2000:
        step = 501

    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(message + MARKER, step=step)
            assert statuses(await agent.rest()) == [status]
            assert origin.connections == []
            assert gateway.policy.gatekeeper.totals == {}

    run(check())


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("step", [0, 1])
def test_a_wrong_body_is_never_completed(name: str, step: int, run: Callable) -> None:
    message, status = BODIES[name]
    if step and len(message) > 2000:
        step = 501

    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(message + MARKER, step=step)
            assert statuses(await agent.rest()) == [status]
            for connection in origin.connections:
                await until(connection.ended.is_set)
            received = origin.received
            assert b"marker" not in received
            assert not received.endswith(b"0\r\n\r\n")

    run(check())


def test_the_table_is_long_enough() -> None:
    assert len(HEADS) + len(BODIES) >= 60


@pytest.mark.parametrize("step", [0, 1])
def test_the_marker_itself_is_answered(step: int, run: Callable) -> None:
    """Or the tests above would prove nothing."""

    async def check() -> None:
        async with served() as (origin, gateway), agent_at(gateway) as agent:
            reply = await agent.ask(MARKER, step=step)
            assert reply.status == 200
            assert b"GET /marker HTTP/1.1" in origin.received

    run(check())


@pytest.mark.parametrize(
    "message",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    ],
)
def test_a_body_over_the_bound_is_413(message: bytes, run: Callable) -> None:
    async def check() -> None:
        async with served(bounds=Bounds(body_bytes=10)) as (origin, gateway), agent_at(gateway) as agent:
            await agent.send(message + MARKER)
            assert statuses(await agent.rest()) == [413]
            for connection in origin.connections:
                await until(connection.ended.is_set)
            assert not origin.received.endswith((b"0\r\n\r\n", b"world"))

    run(check())
