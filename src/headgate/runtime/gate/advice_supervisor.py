"""Traffic advice in the supervisor of several workers: they report, one loop decides, and they serve its document."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from headgate.config import Configuration
from headgate.observe import AdviceState, GateState
from headgate.runtime.gate.advice_loop import report_interval
from headgate.runtime.gate.advice_messages import AdvicePublication, AdviceReport
from headgate.runtime.gate.advice_service import AdviceService
from headgate.runtime.supervisor import Supervisor


class AdviceSupervisor:
    """The loop for the workers of a supervisor; does nothing in a mode that does not compute."""

    def __init__(self, tree: Configuration, supervisor: Supervisor[GateState], *, log: Callable[[str], None]) -> None:
        self._supervisor = supervisor
        self._log = log
        self._section = tree.advice
        self._workers = tree.gate.workers
        self._service = self._new_service()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def publication(self) -> AdvicePublication | None:
        """What a worker that starts has to know."""
        return self._service.loop.publication if self._service is not None else None

    def start(self) -> None:
        """Start to decide."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def reload(self, tree: Configuration) -> None:
        """Apply another configuration; the workers get the publication with theirs."""
        self._section = tree.advice
        if self._service is not None and self._section.computes:
            self._service.reload(self._section, now=time.monotonic())
        else:
            self._service = self._new_service()

    def take(self, report: AdviceReport, *, worker: int) -> None:
        """Add what a worker has counted."""
        if self._service is not None:
            self._service.loop.take(report, worker=worker, now=time.monotonic())

    def state(self) -> tuple[AdviceState, ...]:
        """Return what is published; nothing without a loop."""
        return self._service.loop.state() if self._service is not None else ()

    async def close(self) -> None:
        """Stop to decide."""
        if self._ticking is not None:
            self._ticking.cancel()
            with suppress(asyncio.CancelledError):
                await self._ticking
        if self._service is not None:
            await self._service.save(now=time.monotonic())

    def _new_service(self) -> AdviceService | None:
        if not self._section.computes:
            return None
        return AdviceService(self._section, workers=self._workers, now=time.monotonic(), log=self._log)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(report_interval(self._section))
            publication = await self._service.tick(now=time.monotonic()) if self._service is not None else None
            if publication is not None:
                for worker in self._supervisor.workers:
                    worker.channel.send(publication)
