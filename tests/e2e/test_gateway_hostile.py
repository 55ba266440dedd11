"""Hostile messages over real connections: they are answered with an error, and the other side receives none of them."""

import re

import pytest

from tests.e2e.gateway_setup import agent_at, echo, respond_with, served, until
from tests.unit.http.h1.hostile import BODIES, HEADS, MARKER, RESPONSES

pytestmark = pytest.mark.usefixtures("run")

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def statuses(received: bytes) -> list[int]:
    """List the status of every response there is."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", received)]


async def test_hostile_heads_are_refused_and_never_forwarded() -> None:
    async with served() as (origin, gateway):
        for name, (message, status) in HEADS.items():
            async with agent_at(gateway) as agent:
                await agent.send(message + MARKER)
                assert statuses(await agent.rest()) == [status], name
        assert origin.connections == []
        assert gateway.context.policy.gatekeeper.totals == {}


async def test_hostile_bodies_are_refused_and_never_completed() -> None:
    async with served() as (origin, gateway):
        for name, (message, status) in BODIES.items():
            async with agent_at(gateway) as agent:
                await agent.send(message + MARKER)
                assert statuses(await agent.rest()) == [status], name
            for connection in origin.connections:
                await until(connection.ended.is_set)
            assert b"marker" not in origin.received, name
            assert not origin.received.endswith(b"0\r\n\r\n"), name


async def test_hostile_responses_become_502_and_the_next_request_is_served() -> None:
    async with served() as (origin, gateway), agent_at(gateway) as agent:
        for name, response in RESPONSES.items():
            origin.script = respond_with(response, close=True)
            assert (await agent.ask(GET)).status == 502, name
        origin.script = echo
        assert (await agent.ask(GET)).status == 200


@pytest.mark.parametrize("step", [0, 1])
async def test_the_marker_itself_is_served(step: int) -> None:
    """Or the tests above would prove nothing."""
    async with served() as (origin, gateway), agent_at(gateway) as agent:
        reply = await agent.ask(MARKER, step=step)
        assert reply.status == 200
        assert b"GET /marker HTTP/1.1" in origin.received
