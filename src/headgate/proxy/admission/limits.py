"""Limits of clients, identified by address, and of the tunnels in all workers, counted in memory that they share.

A client is never identified by its token. Of IPv6 addresses the first 64 bits count, which one subscriber has.

Shared memory is an anonymous file. The supervisor creates it and passes its descriptor to workers, so it outlives any
worker and ends with the proxy. The lock on it is the system's, which releases it when its holder dies. Waiting for the
lock is short and never blocks the event loop.
"""

import asyncio
import fcntl
import mmap
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from headgate.limit import Domain, Gatekeeper, Rule
from headgate.proxy.refusal import Refusal

_DOMAIN: Final = "clients"
_MAX_CLIENTS: Final = 100_000
"""Clients whose rate is stored at a time: 60 MiB, if each has sent a burst of 50."""
_MAX_FORGOTTEN: Final = 4
"""Clients checked per CONNECT for expiry; at least 2, so that the table shrinks faster than it grows."""


@lru_cache(maxsize=4096)  # a client usually sends several requests
def client_of(host: str) -> bytes:
    """Return the identifier of the client at an address: 4 bytes of IPv4, 8 of IPv6."""
    address = ip_address(host.partition("%")[0])
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed[:8]


class Clients:
    """Limits each client to `tunnels` at a time, and to the CONNECT requests that `rule` allows; for one worker."""

    def __init__(self, *, tunnels: int, rule: Rule | None = None) -> None:
        self._max_tunnels = tunnels
        self._open: dict[bytes, int] = {}
        self._gate = None if rule is None else _gate(rule)

    def admit(self, client: bytes, *, now: float) -> None:
        """Count a CONNECT of a client; raises `Refusal` if a limit is reached. Call `leave` when it is over.

        `now` comes from a clock that is never set.
        """
        if self._gate is not None:
            self._gate.forget(now=now, most=_MAX_FORGOTTEN)
            if self._gate.master is not None:
                self._gate.master.forget(now=now, most=_MAX_FORGOTTEN)
            outcome = self._gate.admit(_DOMAIN, client, now=now)
            if outcome.release > now:
                raise Refusal("client_rate", retry_after=outcome.release - now)
        if self._open.get(client, 0) >= self._max_tunnels:
            raise Refusal("client_tunnels")
        self._open[client] = self._open.get(client, 0) + 1

    def leave(self, client: bytes) -> None:
        """Count a CONNECT that is over: refused, or its tunnel closed."""
        left = self._open[client] - 1
        if left:
            self._open[client] = left
        else:
            del self._open[client]


def _gate(rule: Rule) -> Gatekeeper:
    return Gatekeeper.embedded([Domain(_DOMAIN, (rule,))], max_delay=0.0, max_identifiers=_MAX_CLIENTS)


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
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        await asyncio.sleep(_RETRY_DELAY)
    else:
        raise LockTimeout
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


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
