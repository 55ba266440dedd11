"""The process that sends the requests of one kind of clients: at random times, whatever happens to earlier ones.

It is a worker process of the demonstration. A new configuration changes the rate and the target of its requests; the
clients then leave the former target, and what they wait for is lost.
"""

import asyncio
import logging
import math
import random
import sys
from contextlib import suppress
from typing import Final

import msgspec

from headgate.runtime.demo.agents import Agent, Place, new_agent, requests_per_visit
from headgate.runtime.demo.connections import Target, client_context
from headgate.runtime.demo.measure import Tally, Visit
from headgate.runtime.demo.plan import Kind
from headgate.runtime.ipc import Configure, Ready, Shutdown, StartFailed, StateQuery, StateReport
from headgate.runtime.lifecycle import Backend
from headgate.runtime.worker_main import run_worker

_MAX_VISITS: Final = 2_000
"""Visits under way at once; the requests of further ones are lost at once."""
_CONNECT_TIMEOUT: Final = 2.0
"""Seconds to open the first connections; the others are opened when they are needed."""
_MAX_BEHIND: Final = 0.5
"""Seconds that the process may be late, if it gets no processor; later requests are left out."""


class LoadConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of clients does until it gets another one."""

    number: int
    """The number of the configuration, which its state repeats."""
    kind: Kind
    clients: int
    rate: float
    """Requests per second of all clients together; 0 sends none."""
    target: Target
    proxies: tuple[int, ...]
    """The ports of the prefetch proxies."""
    certificate: str
    deadline: float
    """Seconds after which a client gives up."""
    min_freshness: float
    """Minimum seconds that polite agents keep fetched advice."""
    seed: int


class LoadState(msgspec.Struct, frozen=True):
    """The state of a process of clients."""

    number: int = -1
    """The number of the configuration in force."""
    tally: Tally = msgspec.field(default_factory=Tally)
    """What it has counted since its start."""


FromParent = Configure[LoadConfiguration] | StateQuery | Shutdown
FromLoad = Ready | StartFailed | StateReport[LoadState]


class LoadProcess(Backend):
    """Clients of one kind as the backend of their process."""

    def __init__(self, configuration: LoadConfiguration) -> None:
        self._configuration = configuration
        self._tls = client_context(configuration.certificate)
        self._draw = random.Random(configuration.seed).random
        self._tally = Tally()
        self._agents: list[Agent] = []
        self._visits: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to send."""
        await self._make_agents()
        self._sending = asyncio.get_running_loop().create_task(self._send())

    async def state(self, *, whole: bool) -> LoadState:  # noqa: ARG002  # nothing of it takes long
        """Return what was counted."""
        return LoadState(self._configuration.number, self._tally)

    async def reload(self, configuration: LoadConfiguration) -> None:
        """Change rate and target."""
        await self._stop_sending()
        old, self._configuration = self._configuration, configuration
        if configuration.target != old.target:
            await self._leave()
            await self._make_agents()
        self._sending = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Stop sending."""
        await self._stop_sending()
        await self._leave()

    async def _make_agents(self) -> None:
        """Make the clients, with a connection each: to open all of them in the first second is a load of its own."""
        made = self._configuration
        place = Place(made.target, made.proxies, self._tls, deadline=made.deadline)
        self._agents = [
            new_agent(made.kind, number, place, min_freshness=made.min_freshness) for number in range(made.clients)
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await asyncio.gather(*(agent.connect() for agent in self._agents), return_exceptions=True)

    async def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _leave(self) -> None:
        """Give up all requests, and close all connections."""
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        for agent in self._agents:
            agent.close()

    async def _send(self) -> None:
        """Begin visits at the times of a Poisson process."""
        loop, size = asyncio.get_running_loop(), requests_per_visit(self._configuration.kind)
        rate = self._configuration.rate / size
        if rate == 0.0:
            return
        due = loop.time()
        while True:
            due += -math.log(1.0 - self._draw()) / rate
            due = max(due, loop.time() - _MAX_BEHIND)
            await asyncio.sleep(max(0.0, due - loop.time()))
            self._begin_visit(size)

    def _begin_visit(self, size: int) -> None:
        visit = Visit(self._tally, size)
        if len(self._visits) >= _MAX_VISITS:
            visit.end()
            return
        agent = self._agents[int(len(self._agents) * self._draw())]
        task = asyncio.get_running_loop().create_task(agent.visit(visit, self._draw))
        self._visits.add(task)
        task.add_done_callback(lambda task: self._end_visit(task, visit))

    def _end_visit(self, task: asyncio.Task[None], visit: Visit) -> None:
        self._visits.discard(task)
        visit.end()


def main() -> int:
    """Run clients until their parent, or a SIGTERM, stops them."""
    # Otherwise warnings of the agent library, such as of a fetch that the end interrupts, are lines in the picture.
    logging.getLogger("headgate").addHandler(logging.NullHandler())
    return run_worker(FromParent, lambda configuration, _send: LoadProcess(configuration))


if __name__ == "__main__":
    sys.exit(main())
