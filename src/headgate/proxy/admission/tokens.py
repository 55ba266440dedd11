"""Each token is good for one tunnel: checking tokens, and remembering which were used, in memory that workers share.

A token is consumed when it is checked, whatever becomes of the request afterwards. Only genuine tokens are stored, so
untrusted clients cannot fill the table.
"""

import mmap
import os
from collections.abc import Iterable

from headgate.proxy.admission.limits import LockTimeout, create_shared_memory, locked
from headgate.token import Checker, Key, Reason, ReplayTable, ValidToken
from headgate.token.replay_table import MAX_TOKENS, table_size


def create_replay_table(maximum: int = MAX_TOKENS) -> int:
    """Create shared memory for so many tokens at a time; returns a descriptor that the caller closes."""
    return create_shared_memory(table_size(maximum))


class TokenCheck:
    """Checks tokens of any of these keys, each once. Raises `ConfigurationError` for contradictory keys.

    Owns the descriptor, which comes from `create_replay_table`. For one event loop.
    """

    def __init__(self, keys: Iterable[Key], descriptor: int) -> None:
        self._checker = Checker(keys)
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, 0)
        self._table = ReplayTable(memoryview(self._memory))

    async def check(self, token: str | None, *, now: float, origin: str) -> ValidToken | Reason:
        """Check a token for a tunnel to a serialised origin, and consume it.

        The answer is "tokens" if the table is full, or its lock cannot be taken in time.
        """
        valid = self._checker.check(token, now=now, origin=origin)
        if not isinstance(valid, ValidToken):
            return valid
        try:
            async with locked(self._descriptor):
                return self._table.consume(valid, now=now) or valid
        except LockTimeout:
            return "tokens"

    def replace_keys(self, keys: Iterable[Key]) -> None:
        """Use other keys from now on; contradictory ones raise and leave the old ones in force."""
        self._checker = Checker(keys)

    def close(self) -> None:
        """Release the table; it ends with the last process that has it."""
        self._table.release()
        self._memory.close()
        os.close(self._descriptor)
