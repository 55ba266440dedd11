"""Each token is good for one tunnel: checking tokens, and remembering which were shown.

A token is consumed when it is checked, whatever becomes of the request afterwards. Only genuine tokens are stored, so
untrusted clients cannot fill the store. `SharedReplayStore` serves the workers of one proxy, `redis_replay_store` those
of several proxies.
"""

import mmap
import os
from collections.abc import Iterable
from typing import Protocol

from headgate.proxy.admission.shared_memory import LockTimeout, create_shared_memory, locked
from headgate.token import Checker, Key, Reason, ReplayTable, Valid
from headgate.token.replay_table import MAX_TOKENS, table_size


class ReplayStore(Protocol):
    """Remembers which tokens were shown."""

    async def consume(self, valid: Valid, *, now: float) -> Reason | None:
        """Consume a token: None the first time, else the reason; "tokens" if the store does not answer in time."""

    async def close(self) -> None:
        """Release what it holds."""


class TokenCheck:
    """Checks tokens of any of these keys, and owns `store`; raises `ConfigurationError` for contradictory keys."""

    def __init__(self, keys: Iterable[Key], store: ReplayStore) -> None:
        self._checker = Checker(keys)
        self._store = store

    async def check(self, token: str | None, *, now: float, origin: str) -> Valid | Reason:
        """Check a token for a tunnel to a serialised origin, and consume it."""
        valid = self._checker.check(token, now=now, origin=origin)
        if isinstance(valid, Valid):
            return await self._store.consume(valid, now=now) or valid
        return valid

    def replace_keys(self, keys: Iterable[Key]) -> None:
        """Use other keys from now on; contradictory ones raise and leave the old ones in force."""
        self._checker = Checker(keys)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


def create_replay_table(maximum: int = MAX_TOKENS) -> int:
    """Create shared memory for so many tokens at a time; returns a descriptor that the caller closes."""
    return create_shared_memory(table_size(maximum))


class SharedReplayStore:
    """A table in shared memory; owns the descriptor, which comes from `create_replay_table`. For one event loop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._table = ReplayTable(memoryview(self._memory))

    async def consume(self, valid: Valid, *, now: float) -> Reason | None:
        """Consume a token; "tokens" if the table is full, or the lock cannot be taken in time."""
        try:
            async with locked(self._descriptor):
                return self._table.consume(valid, now=now)
        except LockTimeout:
            return "tokens"

    async def close(self) -> None:
        """Release the table; it ends with the last process that has it."""
        self._table.release()
        self._memory.close()
        os.close(self._descriptor)
