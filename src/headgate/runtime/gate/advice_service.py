"""The advice loop with its file: read at the start, saved after each decision and at the end."""

import asyncio
from collections.abc import Callable

from headgate.config.advice_section import AdviceSection
from headgate.runtime.gate.advice_loop import AdviceLoop
from headgate.runtime.gate.advice_messages import AdvicePublication
from headgate.runtime.gate.advice_state import AdviceFile


class AdviceService:
    """Runs the loop of a gate with so many `workers`; `log` is called with a line for each change and warning."""

    def __init__(self, section: AdviceSection, *, workers: int, now: float, log: Callable[[str], None]) -> None:
        self._log = log
        self._file = AdviceFile(section.state, log)
        self.loop = AdviceLoop(section, workers=workers, saved=self._file.read(), now=now, log=log)
        """What decides."""
        self._saved_at = now

    def reload(self, section: AdviceSection, *, now: float) -> None:
        """Apply another configuration; what was learned stays."""
        if section.state != self._file.path:
            self._file = AdviceFile(section.state, self._log)
            self._file.read()  # whether it may be written
        self.loop.reload(section, now=now)

    async def tick(self, *, now: float) -> AdvicePublication | None:
        """Decide, if a period has ended, and save; return what is new for the workers."""
        publication = self.loop.tick(now=now)
        if self.loop.decided_at != self._saved_at:
            self._saved_at = self.loop.decided_at
            await self.save(now=now)
        return publication

    async def save(self, *, now: float) -> None:
        """Save the state, in a thread: a disk may be slow."""
        if self._file.path:
            await asyncio.to_thread(self._file.write, self.loop.saved(now=now))
