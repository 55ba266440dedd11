"""Traffic advice in the supervisor of several workers: they report, one loop decides, and they serve its document."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from headgate.config import Configuration
from headgate.observe import AdviceState, GateState
from headgate.runtime.gate.advice.entries import report_interval
from headgate.runtime.gate.advice.messages import AdvicePublication, AdviceReport
from headgate.runtime.gate.advice.persistent_loop import PersistentLoop
from headgate.runtime.supervisor import Supervisor


class AdviceSupervisor:
    """The loop for the workers of a supervisor; does nothing in a mode that does not compute."""

    def __init__(self, tree: Configuration, supervisor: Supervisor[GateState], *, log: Callable[[str], None]) -> None:
        self._supervisor = supervisor
        self._log = log
        self._section = tree.advice
        self._workers = tree.gate.workers
        self._loop = self._new_loop()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def publication(self) -> AdvicePublication | None:
        """What a worker that starts has to know."""
        return self._loop.publication if self._loop is not None else None

    def start(self) -> None:
        """Start to decide."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def reload(self, tree: Configuration) -> None:
        """Apply another configuration; the workers get the publication with theirs."""
        self._section = tree.advice
        if self._loop is not None and self._section.computes:
            self._loop.reload(self._section, now=time.monotonic())
        else:
            self._loop = self._new_loop()

    def take(self, report: AdviceReport, *, worker: int) -> None:
        """Add what a worker has counted."""
        if self._loop is not None:
            self._loop.take(report, worker=worker, now=time.monotonic())

    def state(self) -> tuple[AdviceState, ...]:
        """Return what is published; nothing without a loop."""
        return self._loop.state() if self._loop is not None else ()

    async def close(self) -> None:
        """Stop to decide."""
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
        if self._loop is not None:
            await self._loop.save(now=time.monotonic())

    def _new_loop(self) -> PersistentLoop | None:
        if not self._section.computes:
            return None
        return PersistentLoop(self._section, workers=self._workers, now=time.monotonic(), log=self._log)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(report_interval(self._section))
            publication = await self._loop.tick_and_save(now=time.monotonic()) if self._loop is not None else None
            if publication is not None:
                for worker in self._supervisor.workers:
                    worker.channel.send(publication)
