"""A gate of several processes: workers that share the listening address, and a supervisor with their one master.

The supervisor forwards no request. The bus to its master is a socket in a private directory, which is removed when it
stops.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headgate.config import Address, Configuration
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.observe import State, merge_states
from headgate.runtime.gate.build import build_master, check_composition, compose, require_gate
from headgate.runtime.gate.process import GateConfiguration, master_counters, restart_keys
from headgate.runtime.ipc import Configure, Ready, StartFailed, StateReport
from headgate.runtime.listen import listen_error, reserve_addresses
from headgate.runtime.supervisor import Supervisor, WorkerProcess

__all__ = ["GateWorkers"]


class GateWorkers:
    """The workers, and the master that they share unless it is elsewhere.

    Raises `ConfigurationError` for a configuration that cannot be served.
    """

    module: str = "headgate.runtime.gate.worker"
    message_type: Any = Ready | StartFailed | StateReport[State]
    initial_state: State = State(workers=0)

    def __init__(self, tree: Configuration) -> None:
        require_gate(tree)
        check_composition(tree)
        self._tree = tree
        self._address = Address.parse(tree.gate.listen)
        self._closing = AsyncExitStack()
        self._ended = self.initial_state
        self._supervisor = Supervisor(self, tree.gate.workers, loop=tree.gate.loop)
        self._link: MasterLink | None = None
        self._bus = ""

    async def start(self) -> Address:
        """Start the workers; returns their address when all accept clients.

        Raises `ConfigurationError` when an address is not available or a worker cannot start.
        """
        try:
            reserved = self._closing.enter_context(reserve_addresses(self._address))
        except OSError as error:
            raise listen_error("--listen", self._address, error) from None
        self._address = self._address._replace(port=reserved[0][1])
        if self._tree.gate.master == "embedded":
            folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="headgate-"))
            self._bus = f"ipc://{Path(folder) / 'bus'}"
            self._link = MasterLink(_new_master(self._tree), self._bus)
            self._closing.callback(self._link.close)
            self._link.start(asyncio.get_running_loop())
        await self._supervisor.start()
        return self._address

    def unready(self) -> str:
        """Return why no worker accepts clients; empty when one does."""
        return self._supervisor.unready()

    async def state(self, *, whole: bool) -> State:
        """Return the sum of all workers' states, with the totals of those that have ended."""
        states = await self._supervisor.states(whole=whole)
        total = merge_states([self._ended, *states])
        counters = dict(total.counters)
        if self._link is not None:
            counters |= master_counters(self._link.master)
        return replace(total, master=self._tree.gate.master, counters=counters)

    async def reload(self, tree: Configuration) -> list[str]:
        """Put another configuration in force in all workers; returns the changed keys that need a restart."""
        restart = restart_keys(self._tree, tree)
        require_gate(tree)
        # In a thread: bundles are read whole, and the master that the workers share runs in this loop.
        await asyncio.to_thread(check_composition, tree)
        gate = replace(tree.gate, workers=self._tree.gate.workers, master=self._tree.gate.master)
        self._tree = replace(tree, gate=gate)
        if self._link is not None:
            master = _new_master(tree)
            master.adopt(self._link.master)
            self._link.change(master)
        self._supervisor.reload()
        return restart

    async def drain(self, seconds: float) -> None:
        """Stop all workers gracefully; kill those still running after `seconds`."""
        await self._supervisor.stop(seconds)

    async def close(self) -> None:
        """Stop all workers at once, and release everything."""
        await self._supervisor.stop(0)
        await self._closing.aclose()

    def configuration(self, number: int) -> Configure[GateConfiguration]:  # noqa: ARG002  # they all get the same
        """Return the configuration of a worker: with the true port, and the address of the shared master."""
        gate = replace(self._tree.gate, listen=str(self._address))
        return Configure(GateConfiguration(replace(self._tree, gate=gate), self._bus))

    def on_message(self, worker: WorkerProcess[State], message: Any) -> None:
        """Ignore it: a gate's workers send nothing else."""

    def on_exit(self, worker: WorkerProcess[State]) -> None:
        """Keep the totals of a worker that has ended."""
        last = worker.last_state
        domains = tuple(replace(domain, held=()) for domain in last.domains)
        ended = replace(last, domains=domains, delayed_now=0, connections=0, workers=0)
        self._ended = merge_states([self._ended, ended])


def _new_master(tree: Configuration) -> Master:
    return build_master(tree, compose(tree).domains)
