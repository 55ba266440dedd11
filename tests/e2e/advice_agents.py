"""Agents for a gate that computes its traffic advice, with shortened clocks: polite ones of this project, and clients
of a prefetch proxy. Each has an address of its own on loopback.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2

from headgate.agent import Courtesy, RetryLater
from headgate.agent.httpx import AsyncTransport
from headgate.throttle import Policy, Throttle
from tests.e2e.programs import PATIENCE, Program

WINDOW = 4.0
"""Seconds in which requests are counted: two max-ages."""
_MAX_LATE = 0.5


class Load:
    """What agents would send, and what they send."""

    def __init__(self) -> None:
        self.wanted: deque[float] = deque()
        self.sent: deque[float] = deque()

    def attempt(self) -> None:
        """Count a request that an agent would send."""
        self.wanted.append(time.monotonic())

    def send(self) -> None:
        """Count one that it has sent."""
        self.sent.append(time.monotonic())

    @property
    def part_sent(self) -> float:
        """The part of the requests of the last seconds that were sent."""
        begin = time.monotonic() - WINDOW
        for times in (self.wanted, self.sent):
            while times and times[0] < begin:
                times.popleft()
        return len(self.sent) / max(1, len(self.wanted))

    @property
    def rate(self) -> float:
        """Requests per second that would be sent without advice."""
        return len(self.wanted) / WINDOW


@asynccontextmanager
async def agents(port: int, load: Load, *, count: int, rate: float) -> AsyncIterator[None]:
    """Run agents of this project that want to send `rate` requests per second each."""

    async def run(number: int) -> None:
        throttle = Throttle(Policy(), hold_localhost=False)
        courtesy = Courtesy("LoadBot", throttle=throttle, min_freshness=1.0)
        address = f"127.0.1.{number + 1}"
        transport = AsyncTransport(courtesy, httpx2.AsyncHTTPTransport(verify=False, local_address=address))
        headers = {"User-Agent": "LoadBot/1.0"}
        await asyncio.sleep(number / count / rate)
        async with httpx2.AsyncClient(transport=transport, headers=headers) as client:
            due = time.monotonic()
            for request in itertools.count():
                load.attempt()
                with suppress(RetryLater):
                    await client.get(f"http://127.0.0.1:{port}/{number}/{request}")
                    load.send()
                # Requests that are late are made up for, so that the demand stays the same on a busy machine.
                due = max(due + 1 / rate, time.monotonic() - _MAX_LATE)
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async with _running(*(run(number) for number in range(count))):
        yield


@asynccontextmanager
async def _running(*agents: Awaitable[None]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(agent) for agent in agents]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def state_of(gate: Program, name: str) -> dict[str, Any]:
    """Return the state of a class of agents."""
    state = await asyncio.to_thread(gate.state)
    return next(each for each in state["advice"] if each["user_agent"] == name)


async def wait_until(gate: Program, name: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the state of a class as soon as it has `reached` what is expected."""
    deadline, state = time.monotonic() + 2 * PATIENCE, {}
    while time.monotonic() < deadline:
        state = await state_of(gate, name)
        if reached(state):
            return state
        await asyncio.sleep(0.1)
    raise AssertionError(f"not reached: {state}; {gate.said()}")
