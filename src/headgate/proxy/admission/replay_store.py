"""One token, one tunnel: the check that a proxy makes, and what it asks of whoever remembers.

A token is used up when it is checked, whatever becomes of the CONNECT afterwards. Only a genuine one is remembered, so
strangers cannot fill the memory.
"""

from collections.abc import Iterable
from typing import Protocol

from headgate.token import Checker, Key, Reason, Valid

__all__ = ["ReplayStore", "TokenCheck"]


class ReplayStore(Protocol):
    """Remembers which tokens were shown."""

    async def use(self, valid: Valid, *, now: float) -> Reason | None:
        """Use a token up: None the first time, else why not; "tokens" where that cannot be told, and soon."""

    async def close(self) -> None:
        """Let go of what it holds."""


class TokenCheck:
    """Checks tokens of any of these keys, and owns `once`; raises `ConfigurationError` for keys that are none."""

    def __init__(self, keys: Iterable[Key], once: ReplayStore) -> None:
        self._checker = Checker(keys)
        self._once = once

    async def check(self, token: str | None, *, now: float, origin: str) -> Valid | Reason:
        """Say whether a token opens a tunnel to a serialised origin; asked again about the same one, it does not."""
        valid = self._checker.check(token, now=now, origin=origin)
        if isinstance(valid, Valid):
            return await self._once.use(valid, now=now) or valid
        return valid

    def renew(self, keys: Iterable[Key]) -> None:
        """Check by other keys from now on, as these do; those that are none leave the old ones in force."""
        self._checker = Checker(keys)

    async def close(self) -> None:
        """Let go of what was remembered."""
        await self._once.close()
