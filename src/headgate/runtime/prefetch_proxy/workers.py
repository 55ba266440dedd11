"""A proxy of several processes: workers that share the listening addresses, and a supervisor that fetches advice.

The supervisor relays no tunnel.
"""

import asyncio
from contextlib import ExitStack, suppress
from typing import Any, Final

import msgspec

from headgate.config import Address
from headgate.proxy.admission.remote_advice import AdviceQuery, answer_query
from headgate.proxy.admission.tunnel_slots import TunnelSlots, create_slots
from headgate.proxy.counters import Counts, merged
from headgate.runtime.ipc import Configure
from headgate.runtime.listen import listen_error, reserve_addresses
from headgate.runtime.prefetch_proxy.build import check_proxy, listener_context
from headgate.runtime.prefetch_proxy.messages import FromWorker, ProxyConfiguration, WorkerState
from headgate.runtime.prefetch_proxy.resources import ProxyResources
from headgate.runtime.supervisor import Supervisor, WorkerProcess

__all__ = ["ProxyWorkers"]

_MAX_ORIGINS: Final = 1_000
"""Origins whose counts are kept of workers that have ended."""


class ProxyWorkers:
    """The workers of a proxy, as a server's backend and as the spec of their supervisor."""

    module: str = "headgate.runtime.prefetch_proxy.worker"
    message_type: Any = FromWorker
    initial_state: WorkerState = WorkerState(Counts())

    def __init__(self, resources: ProxyResources) -> None:
        self._resources = resources
        self._closing = ExitStack()
        self._ended = self.initial_state
        self._supervisor: Supervisor[WorkerState] | None = None
        self._replies: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start the workers; returns their port when all accept clients. Raises `ConfigurationError`."""
        settings = self._resources.settings
        address = Address.parse(settings.listen)
        try:
            addresses = self._closing.enter_context(reserve_addresses(address))
        except OSError as error:
            raise listen_error("--listen", address, error) from None
        self._addresses = tuple(addresses)
        places = create_slots(settings.workers)
        self._places = TunnelSlots(settings.max_tunnels, places)
        self._shared = self._resources.share(places=places, listeners=addresses)
        inherited = [places] if self._shared.tokens is None else [places, self._shared.tokens]
        self._supervisor = Supervisor(
            self, settings.workers, loop=settings.loop, descriptors=inherited, log=self._resources.lines.say
        )
        await self._supervisor.start()
        return addresses[0][1]

    def unready(self) -> str:
        """Return why no worker accepts clients; empty when one does."""
        return "starting" if self._supervisor is None else self._supervisor.unready()

    async def states(self) -> list[WorkerState]:
        """Return the states of all workers, the totals of those that have ended, and this process's dropped lines."""
        running = [] if self._supervisor is None else await self._supervisor.states(whole=True)
        return [*running, self._ended, WorkerState(Counts(), dropped=self._resources.lines.dropped)]

    def reload(self) -> None:
        """Have all workers read their files again. Raises, and changes nothing, for invalid files."""
        settings, files = self._resources.settings, self._resources.files
        check_proxy(settings)
        if files is not None:
            listener_context(settings, *files)  # also of a self-signed certificate: the client CA is read with it
        if self._supervisor is not None:
            self._supervisor.reload()

    async def drain(self, seconds: float) -> int:
        """Stop all workers gracefully; returns how many tunnels had to be cut."""
        if self._supervisor is not None:
            await self._supervisor.stop(seconds)
        return self._ended.cut

    async def close(self) -> None:
        """Stop all workers at once, and release everything."""
        await self.drain(0)
        for task in self._replies:
            task.cancel()
        self._closing.close()

    def configuration(self, number: int) -> Configure[ProxyConfiguration]:
        """Return the configuration of a worker."""
        shared = msgspec.structs.replace(self._shared, worker=number)
        return Configure(ProxyConfiguration(self._resources.settings, shared, self._addresses))

    def on_message(self, worker: WorkerProcess[WorkerState], message: Any) -> None:
        """Reply to a worker that needs an origin's advice."""
        assert isinstance(message, AdviceQuery)
        task = asyncio.ensure_future(self._reply(worker, message))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def on_exit(self, worker: WorkerProcess[WorkerState]) -> None:
        """Keep the totals of a worker that has ended, and release its tunnel slots."""
        self._places.bury(worker.number)
        ended, last = self._ended, worker.last_state
        counts = merged([ended.counts, last.counts])
        counts.tunnels = 0
        counts.origins = dict(list(counts.origins.items())[-_MAX_ORIGINS:])
        self._ended = WorkerState(counts, ended.dropped + last.dropped, ended.cut + last.cut)

    async def _reply(self, worker: WorkerProcess[WorkerState], want: AdviceQuery) -> None:
        with suppress(asyncio.CancelledError):  # the proxy stops
            worker.channel.send(await answer_query(want, self._resources.advising))
