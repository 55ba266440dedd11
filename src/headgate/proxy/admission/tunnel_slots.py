"""TunnelSlots for tunnels, so many for all workers together: taken one at a time, and never one too many.

Each worker counts its own in a cell of the memory they share, so that the places of one that died can be freed by
whoever outlives it.
"""

import mmap
import os
from typing import Final

from headgate.proxy.admission.shared_memory import LockTimeout, create_shared_memory, lock, locked, unlock

__all__ = ["TunnelSlots", "create_slots"]

_CELL: Final = 8


def create_slots(workers: int) -> int:
    """Make the memory for so many workers, and give its descriptor, which is the caller's to close."""
    return create_shared_memory(workers * _CELL)


class TunnelSlots:
    """At most `most` places over all workers; this one's are in the cell `worker`, which counts from 0.

    The descriptor, from `make_places`, is its own from then on; it is for one event loop.
    """

    def __init__(self, most: int, descriptor: int, *, worker: int = 0) -> None:
        self._most = most
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._cells = memoryview(self._memory).cast("q")
        self._worker = worker

    @property
    def taken(self) -> int:
        """How many are taken, by all workers."""
        return sum(self._cells)

    async def take(self) -> bool:
        """Take a place, if there is one; False too where that cannot be told now."""
        if len(self._cells) == 1:
            return self._take()  # nobody else is there to take one at this moment
        if lock(self._descriptor):  # as nearly always: it is held for a moment
            try:
                return self._take()
            finally:
                unlock(self._descriptor)
        try:
            async with locked(self._descriptor):
                return self._take()
        except LockTimeout:
            return False

    def _take(self) -> bool:
        is_free = sum(self._cells) < self._most
        self._cells[self._worker] += is_free
        return is_free

    def leave(self) -> None:
        """Give a place back."""
        # No lock: nobody else writes this cell, and whoever sums at this moment sees one place fewer or not.
        self._cells[self._worker] -= 1

    def bury(self, worker: int) -> None:
        """Free the places of a worker that is gone."""
        self._cells[worker] = 0

    def close(self) -> None:
        """Let go of the memory."""
        self._cells.release()
        self._memory.close()
        os.close(self._descriptor)
