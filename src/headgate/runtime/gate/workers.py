"""A gate of several processes: workers that share the listener, and a parent with their one master and the admin.

The parent proxies nothing. It starts the workers, starts again those that die, sums what they tell, passes on what it
is told, and ends them. The bus between them is a socket in a private directory that goes when the parent goes.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headgate.config import Address, Configuration
from headgate.errors import ConfigurationError
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.observe import State, merge_states
from headgate.runtime.event_loop import Reloads, Signals, run
from headgate.runtime.gate.build import check_composition, compose, master_of, require_gate
from headgate.runtime.gate.options import GateOptions
from headgate.runtime.gate.process import GateOrders, frozen_changes, master_counters
from headgate.runtime.gate.server import announce, open_admin, open_demo, read_again
from headgate.runtime.ipc import Configure, Failed, Ready, Told
from headgate.runtime.listen import address_sentence, reserved
from headgate.runtime.supervisor import Crew, Member

__all__ = ["Workers", "serve_with_workers"]


def serve_with_workers(options: GateOptions) -> int:
    """Serve from several processes until a signal ends them; returns the exit code."""
    return run(lambda: _serve(options), loop=options.read()[0].gate.loop)


async def _serve(options: GateOptions) -> int:
    async with AsyncExitStack() as closing:
        options = await open_demo(options, closing)
        tree, _ = options.read()
        require_gate(tree)
        check_composition(tree)
        address = _reserve(Address.parse(tree.gate.listen), closing)
        workers = Workers(tree, address, closing)
        closing.push_async_callback(workers.end, 0)
        admin = await open_admin(options, tree, closing, workers.state, unready=workers.unready)
        reloads = Reloads(lambda: read_again(options, workers.change))
        closing.push_async_callback(reloads.end)
        signals = Signals(reloads.ask)
        await workers.start()
        announce(options, tree, address, admin)
        await signals.asked.wait()
        await reloads.end()
        await signals.unless_insisted(workers.end(tree.gate.drain))
    return 0


def _reserve(address: Address, closing: AsyncExitStack) -> Address:
    try:
        return Address(address.host, closing.enter_context(reserved(address))[0][1])
    except OSError as error:
        raise ConfigurationError(address_sentence("--listen", address, error)) from None


class Workers:
    """All the workers, and the master they share unless it is elsewhere; what is opened goes with `closing`."""

    module: str = "headgate.runtime.gate.worker"
    hears: Any = Ready | Failed | Told[State]
    nothing: State = State(workers=0)

    def __init__(self, tree: Configuration, address: Address, closing: AsyncExitStack) -> None:
        self._tree = tree
        self._address = address
        self._past = State(workers=0)
        self._crew = Crew(self, tree.gate.workers, loop=tree.gate.loop)
        self._link: MasterLink | None = None
        self._bus = ""
        if tree.gate.master == "embedded":
            folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="headgate-"))
            self._bus = f"ipc://{Path(folder) / 'bus'}"
            self._link = MasterLink(self._new_master(tree), self._bus)
            closing.callback(self._link.close)

    async def start(self) -> None:
        """Start them; comes back when all accept. Raises `ConfigurationError` when one cannot."""
        if self._link is not None:
            self._link.start(asyncio.get_running_loop())
        await self._crew.start()

    def unready(self) -> str:
        """Say why no request is accepted; empty when they are."""
        return self._crew.unready()

    async def state(self, *, whole: bool) -> State:
        """Ask every worker; give the sum, with what workers told that are no more."""
        living = await self._crew.states(whole=whole)
        summed = merge_states([self._past, *living])
        counters = dict(summed.counters)
        if self._link is not None:
            counters |= master_counters(self._link.master)
        return replace(summed, master=self._tree.gate.master, counters=counters)

    async def change(self, tree: Configuration) -> list[str]:
        """Put another configuration in force in all workers, one at a time; returns the keys that need a restart."""
        frozen = frozen_changes(self._tree, tree)
        require_gate(tree)
        # In a thread: bundles are read whole, and the master that the workers share is in this loop.
        await asyncio.to_thread(check_composition, tree)
        gate = replace(tree.gate, workers=self._tree.gate.workers, master=self._tree.gate.master)
        self._tree = replace(tree, gate=gate)
        if self._link is not None:
            master = self._new_master(tree)
            master.adopt(self._link.master)
            self._link.change(master)
        self._crew.send(self.orders())
        return frozen

    async def end(self, seconds: float) -> None:
        """End them all: politely, and after `seconds` not."""
        await self._crew.end(seconds)

    def orders(self, number: int = 0) -> Configure[GateOrders]:  # noqa: ARG002  # they all get the same
        """Give the configuration as a worker needs it, with the true port, and the address of the parent's master."""
        gate = replace(self._tree.gate, listen=str(self._address))
        return Configure(GateOrders(replace(self._tree, gate=gate), self._bus))

    def heard(self, member: Member[State], message: Any) -> None:
        """Hear nothing: a gate's workers say nothing else."""

    def buried(self, member: Member[State]) -> None:
        """Keep what a worker that is gone has counted."""
        last = member.last
        domains = tuple(replace(domain, held=()) for domain in last.domains)
        ended = replace(last, domains=domains, delayed_now=0, connections=0, workers=0)
        self._past = merge_states([self._past, ended])

    def _new_master(self, tree: Configuration) -> Master:
        return master_of(tree, compose(tree).domains)
