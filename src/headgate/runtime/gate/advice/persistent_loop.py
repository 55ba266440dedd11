"""The advice loop with its file: read at the start, saved after each decision and at the end.

The loop has a clock that is never set (`time.monotonic`): agents keep their advice for a max-age, whatever happens to
the wall clock. Only the file has wall-clock time.
"""

import asyncio
import time
from collections.abc import Callable

from msgspec.structs import replace

from headgate.config.advice_section import AdviceSection
from headgate.runtime.gate.advice.loop import AdviceLoop
from headgate.runtime.gate.advice.messages import AdvicePublication
from headgate.runtime.gate.advice.state_file import SavedAdvice, StateFile


class PersistentLoop(AdviceLoop):
    """The loop of a gate with so many `workers`; `log` is called with a line for each change and warning.

    `now` is monotonic, and `wall` the clock for the file.
    """

    def __init__(
        self,
        section: AdviceSection,
        *,
        workers: int,
        now: float,
        log: Callable[[str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._write_line = log
        self._file = StateFile(section.state, log)
        self._wall = wall
        saved = self._file.read()
        if saved is not None:
            saved = _later(saved, now - wall())
        super().__init__(section, workers=workers, saved=saved, now=now, log=log)
        self._saved_at = self.decided_at

    def reload(self, section: AdviceSection, *, now: float) -> None:
        """Apply another configuration; what was learned stays."""
        if section.state != self._file.path:
            self._file = StateFile(section.state, self._write_line)
            self._file.read()  # whether it may be written
        super().reload(section, now=now)

    async def tick_and_save(self, *, now: float) -> AdvicePublication | None:
        """Decide, if a period has ended, and save; return what is new for the workers."""
        publication = self.tick(now=now)
        if self.decided_at != self._saved_at:
            self._saved_at = self.decided_at
            await self.save(now=now)
        return publication

    async def save(self, *, now: float) -> None:
        """Save the state, in a thread: a disk may be slow."""
        if self._file.path:
            await asyncio.to_thread(self._file.write, _later(self.saved(now=now), self._wall() - now))


def _later(saved: SavedAdvice, seconds: float) -> SavedAdvice:
    """Return a state with its time on another clock, which is ahead by so many seconds."""
    return replace(saved, saved=saved.saved + seconds)
