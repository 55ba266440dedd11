"""The decision inside the gateway: accepted, delayed and rejected requests, and what is answered locally."""

import asyncio
import time
from collections.abc import Callable

from headgate.limit import DelayUntil, Gatekeeper
from tests.e2e.gateway_setup import agent_at, read_request, served

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def held(gatekeeper: Gatekeeper, seconds: float) -> None:
    """Hold the test's own client for so long."""
    gatekeeper.obey(DelayUntil("default", b"127.0.0.1", time.time() + seconds))


def totals(gatekeeper: Gatekeeper, domain: str = "default") -> tuple[int, int, int]:
    counts = gatekeeper.totals[domain]
    return counts.accepted, counts.delayed, counts.rejected


def test_a_delayed_request_goes_at_its_release_and_not_before(run: Callable) -> None:
    arrivals: list[float] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            arrivals.append(time.time())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def check() -> None:
        async with served(script, rule="10/s burst 1") as (_, gateway):
            async with agent_at(gateway) as agent:
                beginning = time.time()
                for _ in range(4):
                    assert (await agent.ask(GET)).status == 200
            assert totals(gateway.policy.gatekeeper) == (1, 3, 0)
            assert all(arrival >= beginning + 0.1 * number for number, arrival in enumerate(arrivals))

    run(check())


def test_a_rejection_arrives_even_while_the_body_is_still_sent(run: Callable) -> None:
    """Closing with bytes unread would make the system reset the connection, and the response with it."""

    async def check() -> None:
        async with served() as (_, gateway), agent_at(gateway) as agent:
            held(gateway.policy.gatekeeper, 100)
            head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n"
            await agent.send(head + b"x" * 8_000_000)
            assert (await agent.response()).status == 503
            assert await agent.rest() == b""

    run(check())
