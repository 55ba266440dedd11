"""Memory that the workers of a proxy share: an anonymous file, and the lock on it.

The supervisor creates it and passes its descriptor to workers, so it outlives any worker and ends with the proxy. The
lock is the system's, which releases it when its holder dies. Waiting for it is short and never blocks the event loop.
"""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_RETRY_DELAY: Final = 0.001
_MAX_TRIES: Final = 100


class LockTimeout(Exception):
    """The lock was not released in time; its holder may be stopped."""


def create_shared_memory(size: int) -> int:
    """Create `size` bytes of shared memory, all zero; returns a descriptor that the caller closes."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("headgate", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


@asynccontextmanager
async def locked(descriptor: int) -> AsyncIterator[None]:
    """Hold the lock on shared memory; raises `LockTimeout` after a tenth of a second.

    The block must not await anything: the lock belongs to the process, not to the task.
    """
    for _ in range(_MAX_TRIES):
        if lock(descriptor):
            break
        await asyncio.sleep(_RETRY_DELAY)
    else:
        raise LockTimeout
    try:
        yield
    finally:
        unlock(descriptor)


def lock(descriptor: int) -> bool:
    """Take the lock if it is free; returns whether it was."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock."""
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
