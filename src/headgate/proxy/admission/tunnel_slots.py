"""Slots for tunnels, limited over all workers together.

Each worker counts its own in one cell of shared memory, so that the slots of a worker that died can be freed.
"""

import mmap
import os
from typing import Final

from headgate.proxy.admission.shared_memory import LockTimeout, create_shared_memory, lock, locked, unlock

_CELL_SIZE: Final = 8


def create_slots(workers: int) -> int:
    """Create the memory for so many workers; returns a descriptor that the caller closes."""
    return create_shared_memory(workers * _CELL_SIZE)


class TunnelSlots:
    """At most `maximum` tunnels in all workers; those of this worker are counted in cell `worker`, from 0.

    Owns the descriptor, which comes from `create_slots`. For one event loop.
    """

    def __init__(self, maximum: int, descriptor: int, *, worker: int = 0) -> None:
        self._maximum = maximum
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._cells = memoryview(self._memory).cast("q")
        self._worker = worker

    @property
    def taken(self) -> int:
        """The number of slots that all workers have taken."""
        return sum(self._cells)

    async def take(self) -> bool:
        """Take a slot if one is free; returns False also if the lock cannot be taken in time."""
        if len(self._cells) == 1:
            return self._take()  # no other worker can take one at this moment
        if lock(self._descriptor):  # nearly always free
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
        is_free = sum(self._cells) < self._maximum
        self._cells[self._worker] += is_free
        return is_free

    def release(self) -> None:
        """Release a slot."""
        # Without the lock: no other worker writes this cell, and a concurrent sum is right before or after.
        self._cells[self._worker] -= 1

    def reclaim(self, worker: int) -> None:
        """Free the slots of a worker that has ended."""
        self._cells[worker] = 0

    def close(self) -> None:
        """Release the memory."""
        self._cells.release()
        self._memory.close()
        os.close(self._descriptor)
