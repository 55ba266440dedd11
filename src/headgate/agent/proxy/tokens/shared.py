"""The memory of one proxy, shared by its workers: a table in a file that has no name.

Whoever starts the workers makes it and hands its descriptor down, so it lasts while a worker dies and another comes,
and ends with the proxy. Each use holds a lock of the system's, which goes with the process that holds it; nobody waits
for it for long, and the event loop never.
"""

import asyncio
import fcntl
import mmap
import os
import tempfile
from typing import Final

from headgate.token import Reason, ReplayTable, Valid
from headgate.token.replay import MOST_TOKENS, table_size

__all__ = ["SharedOnce", "make_table"]

_PAUSE: Final = 0.001
_TRIES: Final = 100


def make_table(most: int = MOST_TOKENS) -> int:
    """Make the memory for so many tokens at a time, and give its descriptor, which is the caller's to close."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("headgate-tokens", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, table_size(most))
    return descriptor


class SharedOnce:
    """Remembers in the table behind a descriptor from `make_table`, its own or one that was inherited.

    The descriptor is its own from then on. It is for one event loop; other processes have theirs.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._table = ReplayTable(memoryview(self._memory))

    async def use(self, valid: Valid, *, now: float) -> Reason | None:
        """Use a token up; "tokens" where the table has no room, or a process that holds the lock is stopped."""
        for _ in range(_TRIES):
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                await asyncio.sleep(_PAUSE)
                continue
            try:
                return self._table.use(valid, now=now)
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
        return "tokens"

    async def close(self) -> None:
        """Let go of the table; it is gone once nobody holds it."""
        self._table.release()
        self._memory.close()
        os.close(self._descriptor)
