"""Memory that a proxy's workers share: a file that has no name, and the lock on it.

Whoever starts the workers makes it and hands its descriptor down, so it lasts while a worker dies and another comes,
and ends with the proxy. The lock is the system's and goes with the process that holds it. Nobody waits for it for long,
and the event loop never.
"""

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["LockTimeout", "lock", "locked", "create_shared_memory", "unlock"]

_PAUSE: Final = 0.001
_TRIES: Final = 100


class LockTimeout(Exception):
    """The lock is held by a process that does not go on."""


def create_shared_memory(size: int) -> int:
    """Make so many bytes of shared memory, all zero, and give their descriptor, which is the caller's to close."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("headgate", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


@asynccontextmanager
async def locked(descriptor: int) -> AsyncIterator[None]:
    """Hold the lock on shared memory; raises `Stuck` where it cannot be had within a tenth of a second.

    The block must not await anything: the lock is the process's, not the task's.
    """
    for _ in range(_TRIES):
        if lock(descriptor):
            break
        await asyncio.sleep(_PAUSE)
    else:
        raise LockTimeout
    try:
        yield
    finally:
        unlock(descriptor)


def lock(descriptor: int) -> bool:
    """Take the lock, if it can be had at once; returns whether it could. `unlock` has to follow."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give the lock back."""
    fcntl.lockf(descriptor, fcntl.LOCK_UN)
