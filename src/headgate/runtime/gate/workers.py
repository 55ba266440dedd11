"""A gate of several processes: workers that share the listening address, and a supervisor with their one master.

The supervisor forwards no request. The bus to its master is a socket in a private directory, which is removed when it
stops.
"""

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headgate.config import Configuration
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.observe import State, merge_states
from headgate.runtime.backend import Backend
from headgate.runtime.gate.build import build_master, check_composition, compose, keep_restart_keys, require_gate
from headgate.runtime.gate.process import GateConfiguration, master_counters
from headgate.runtime.ipc import Configure, Ready, StartFailed, StateReport
from headgate.runtime.supervisor import Supervisor, WorkerProcess


class GateWorkers(Backend):
    """The workers, and the master that they share unless it is elsewhere.

    Raises `ConfigurationError` for a configuration that cannot be served.
    """

    module: str = "headgate.runtime.gate.worker"
    message_type: Any = Ready | StartFailed | StateReport[State]
    initial_state: State = State(workers=0)

    def __init__(self, configuration: GateConfiguration) -> None:
        tree = configuration.tree
        require_gate(tree)
        check_composition(tree)
        self._configuration = configuration
        self._closing = ExitStack()
        self._ended = self.initial_state
        self._supervisor = Supervisor(self, tree.gate.workers, loop=tree.gate.loop)
        self._link: MasterLink | None = None

    @property
    def drain_timeout(self) -> float:
        return self._configuration.tree.gate.drain

    async def start(self) -> None:
        if self._configuration.tree.gate.master == "embedded":
            folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="headgate-"))
            self._configuration = replace(self._configuration, bus=f"ipc://{Path(folder) / 'bus'}")
            self._link = MasterLink(_new_master(self._configuration.tree), self._configuration.bus)
            self._closing.callback(self._link.close)
            self._link.start(asyncio.get_running_loop())
        await self._supervisor.start()

    def unready(self) -> str:
        return self._supervisor.unready()

    async def state(self, *, whole: bool) -> State:
        """Return the sum of all workers' states, with the totals of those that have ended."""
        states = await self._supervisor.states(whole=whole)
        total = merge_states([self._ended, *states])
        counters = dict(total.counters)
        if self._link is not None:
            counters |= master_counters(self._link.master)
        return replace(total, master=self._configuration.tree.gate.master, counters=counters)

    async def reload(self, configuration: GateConfiguration) -> None:
        tree = keep_restart_keys(self._configuration.tree, configuration.tree)
        require_gate(tree)
        # In a thread: bundles are read whole, and the master that the workers share runs in this loop.
        await asyncio.to_thread(check_composition, tree)
        self._configuration = replace(self._configuration, tree=tree)
        if self._link is not None:
            master = _new_master(tree)
            master.adopt(self._link.master)
            self._link.set_master(master)
        self._supervisor.reload()

    async def drain(self, seconds: float) -> None:
        await self._supervisor.stop(seconds)

    async def close(self) -> None:
        await self._supervisor.stop(0)
        self._closing.close()

    def configuration(self, number: int) -> Configure[GateConfiguration]:  # noqa: ARG002  # they all get the same
        """Return the configuration of a worker."""
        return Configure(self._configuration)

    def on_worker_message(self, worker: WorkerProcess[State], message: Any) -> None:
        """Ignore it: a gate's workers send nothing else."""

    def on_worker_exit(self, worker: WorkerProcess[State]) -> None:
        """Keep the totals of a worker that has ended."""
        last = worker.last_state
        domains = tuple(replace(domain, held=()) for domain in last.domains)
        ended = replace(last, domains=domains, delayed_now=0, connections=0, workers=0)
        self._ended = merge_states([self._ended, ended])


def _new_master(tree: Configuration) -> Master:
    return build_master(tree, compose(tree).domains)
