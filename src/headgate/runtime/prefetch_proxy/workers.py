"""A proxy of several processes: workers that share the listener, and a parent that asks origins and has the admin.

The parent relays nothing. It keeps the workers running, knows how many tunnels each has, asks for all of them what
origins advise, sums what they count, and ends them.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec

from headgate.errors import ConfigurationError
from headgate.proxy.admission.remote_advice import AdviceQuery, answer_query
from headgate.proxy.admission.tunnel_slots import TunnelSlots, create_slots
from headgate.proxy.counters import Counts, merged
from headgate.runtime.event_loop import run
from headgate.runtime.ipc import Configure
from headgate.runtime.listen import address_sentence, reserved
from headgate.runtime.prefetch_proxy.build import check_proxy, listener_context
from headgate.runtime.prefetch_proxy.messages import Assignment, FromWorker, Renew, WorkerState
from headgate.runtime.prefetch_proxy.server import Front, ReadProxy, live
from headgate.runtime.supervisor import Crew, Member

__all__ = ["Workers", "serve_with_workers"]

_MOST_ORIGINS = 1_000
"""Origins told of that only workers knew of that are gone."""


def serve_with_workers(read: ReadProxy) -> int:
    """Serve from several processes until a signal ends them; returns the exit code."""
    return run(lambda: live(read, _start), loop=read()[0].loop)


async def _start(front: Front, closing: AsyncExitStack) -> "Workers":
    try:
        addresses = closing.enter_context(reserved(front.address))
    except OSError as error:
        raise ConfigurationError(address_sentence("--listen", front.address, error)) from None
    workers = Workers(front, addresses)
    closing.push_async_callback(workers.end, 0)
    await workers.start()
    return workers


class Workers:
    """All the workers, as a plan of their crew; see `Body` too."""

    module: str = "headgate.runtime.prefetch_proxy.worker"
    hears: Any = FromWorker
    nothing: WorkerState = WorkerState(Counts())

    def __init__(self, front: Front, addresses: list[tuple[str, int]]) -> None:
        settings = front.settings
        self._front = front
        self._addresses = tuple(addresses)
        places = create_slots(settings.workers)
        self._share = front.share(places=places, listeners=addresses)
        self._places = TunnelSlots(settings.max_tunnels, places)
        handed_down = [places] if self._share.tokens is None else [places, self._share.tokens]
        self._crew: Crew[WorkerState] = Crew(
            self, settings.workers, loop=settings.loop, descriptors=handed_down, tell=front.lines.say
        )
        self._past = self.nothing
        self._answering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start them; comes back when all accept. Raises `ConfigurationError` when one cannot."""
        await self._crew.start()

    def unready(self) -> str:
        """Say why no CONNECT is accepted; empty when they are."""
        return self._crew.unready()

    async def states(self) -> list[WorkerState]:
        """Give what every worker counts, what those counted that are no more, and what this process lost of the log."""
        living = await self._crew.states(whole=True)
        return [*living, self._past, WorkerState(Counts(), dropped=self._front.lines.dropped)]

    def renew(self) -> None:
        """Have all workers read their files again, unless what is read is wrong."""
        settings, files = self._front.settings, self._share.files
        check_proxy(settings)
        if files is not None:
            listener_context(settings, *files)  # of a certificate that is made here, too: the clients' is read with it
        self._crew.send(Renew())

    async def end(self, seconds: float) -> int:
        """End them all; see `Body`."""
        await self._crew.end(seconds)
        for task in self._answering:
            task.cancel()
        return self._past.cut

    def orders(self, number: int) -> Configure[Assignment]:
        """Say what a worker is to be."""
        share = msgspec.structs.replace(self._share, worker=number)
        return Configure(Assignment(self._front.settings, share, self._addresses))

    def heard(self, member: Member[WorkerState], message: Any) -> None:
        """Hear that a worker wants to know what an origin advises."""
        assert isinstance(message, AdviceQuery)
        task = asyncio.ensure_future(self._answer(member, message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def buried(self, member: Member[WorkerState]) -> None:
        """Keep what a worker that is gone has counted, and free the places it had."""
        self._places.bury(member.number)
        past, last = self._past, member.last
        counts = merged([past.counts, last.counts])
        counts.tunnels = 0
        counts.origins = dict(list(counts.origins.items())[-_MOST_ORIGINS:])
        self._past = WorkerState(counts, past.dropped + last.dropped, past.cut + last.cut)

    async def _answer(self, member: Member[WorkerState], want: AdviceQuery) -> None:
        with suppress(asyncio.CancelledError):  # the proxy ends
            member.channel.send(await answer_query(want, self._front.advising))
