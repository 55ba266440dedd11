"""The memory of one proxy's tokens, shared by its workers: a table in memory that they share (`memory`)."""

import mmap
import os

from headgate.proxy.admission.shared_memory import LockTimeout, create_shared_memory, locked
from headgate.token import Reason, ReplayTable, Valid
from headgate.token.replay import MOST_TOKENS, table_size

__all__ = ["SharedReplayStore", "create_replay_table"]


def create_replay_table(most: int = MOST_TOKENS) -> int:
    """Make the memory for so many tokens at a time, and give its descriptor, which is the caller's to close."""
    return create_shared_memory(table_size(most))


class SharedReplayStore:
    """Remembers in the table behind a descriptor from `make_table`, its own or one that was inherited.

    The descriptor is its own from then on. It is for one event loop; other processes have theirs.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._table = ReplayTable(memoryview(self._memory))

    async def use(self, valid: Valid, *, now: float) -> Reason | None:
        """Use a token up; "tokens" where the table has no room, or a process that holds the lock is stopped."""
        try:
            async with locked(self._descriptor):
                return self._table.use(valid, now=now)
        except LockTimeout:
            return "tokens"

    async def close(self) -> None:
        """Let go of the table; it is gone once no process holds it."""
        self._table.release()
        self._memory.close()
        os.close(self._descriptor)
