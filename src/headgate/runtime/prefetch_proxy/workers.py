"""A proxy of several processes: workers that share the listening addresses, and a supervisor that fetches advice.

The supervisor relays no tunnel.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec

from headgate.proxy.admission.advice_service import AdviceService
from headgate.proxy.admission.remote_advice import AdviceQuery, answer_query
from headgate.proxy.admission.tunnel_slots import TunnelSlots
from headgate.proxy.counters import Counts, merged
from headgate.proxy.log import LogWriter
from headgate.runtime.backend import Backend
from headgate.runtime.ipc import Configure
from headgate.runtime.prefetch_proxy.build import check_proxy, listener_tls_context
from headgate.runtime.prefetch_proxy.messages import FromWorker, ProxyConfiguration, WorkerState
from headgate.runtime.supervisor import Supervisor, WorkerProcess

_MAX_ORIGINS: Final = 1_000
"""Origins whose counts are kept of workers that have ended."""


class ProxyWorkers(Backend):
    """The workers of a proxy, with the advice that they ask for."""

    module: str = "headgate.runtime.prefetch_proxy.worker"
    message_type: Any = FromWorker
    initial_state: WorkerState = WorkerState(Counts())

    def __init__(self, configuration: ProxyConfiguration, advice: AdviceService, log: LogWriter) -> None:
        settings = configuration.settings
        self._configuration = configuration
        self._advice = advice
        self._log = log
        self._ended = self.initial_state
        self._slots = TunnelSlots(settings.max_tunnels, configuration.slots)
        inherited = [one for one in (configuration.slots, configuration.tokens) if one is not None]
        self._supervisor = Supervisor(self, settings.workers, loop=settings.loop, descriptors=inherited, log=log.say)
        self._replies: set[asyncio.Task[None]] = set()

    @property
    def drain_timeout(self) -> float:
        return self._configuration.settings.drain

    async def start(self) -> None:
        await self._supervisor.start()

    def unready(self) -> str:
        return self._supervisor.unready()

    async def state(self, *, whole: bool) -> WorkerState:  # noqa: ARG002  # nothing of it takes long
        """Return the sum of all workers' states, of those that have ended, and of this process's dropped lines."""
        states = [*await self._supervisor.states(whole=True), self._ended]
        dropped = self._log.dropped + sum(state.dropped for state in states)
        counts = merged([state.counts for state in states])
        return WorkerState(counts, dropped, cut=sum(state.cut for state in states))

    async def reload(self, configuration: None) -> None:  # noqa: ARG002  # only files are read again
        check_proxy(self._configuration.settings)
        if self._configuration.files is not None:
            # Also of a self-signed certificate: the certificate authority of clients is read with it.
            listener_tls_context(self._configuration.settings, *self._configuration.files)
        self._supervisor.reload()

    async def drain(self, seconds: float) -> None:
        await self._supervisor.stop(seconds)

    async def close(self) -> None:
        await self.drain(0)
        for task in self._replies:
            task.cancel()

    def configuration(self, number: int) -> Configure[ProxyConfiguration]:
        """Return the configuration of a worker."""
        return Configure(msgspec.structs.replace(self._configuration, worker=number))

    def on_worker_message(self, worker: WorkerProcess[WorkerState], message: Any) -> None:
        """Reply to a worker that needs an origin's advice."""
        assert isinstance(message, AdviceQuery)
        task = asyncio.ensure_future(self._reply(worker, message))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def on_worker_exit(self, worker: WorkerProcess[WorkerState]) -> None:
        """Keep the totals of a worker that has ended, and release its tunnel slots."""
        self._slots.reclaim(worker.number)
        ended, last = self._ended, worker.last_state
        counts = merged([ended.counts, last.counts])
        counts.tunnels = 0
        counts.origins = dict(list(counts.origins.items())[-_MAX_ORIGINS:])
        self._ended = WorkerState(counts, ended.dropped + last.dropped, ended.cut + last.cut)

    async def _reply(self, worker: WorkerProcess[WorkerState], query: AdviceQuery) -> None:
        with suppress(asyncio.CancelledError):  # the proxy stops
            worker.channel.send(await answer_query(query, self._advice))
