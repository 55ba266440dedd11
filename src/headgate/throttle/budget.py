"""A retry budget for each origin: a retry costs a token, and successes earn them slowly.

This file knows nothing of targets, failures or time: it counts what it is told of. So a server that fails everything
is sent little more than its first requests, however patient whoever retries is.
"""

from typing import Final

from headgate.errors import ConfigurationError

__all__ = ["RetryBudget"]

_SHARES: Final = 10
"""Of a token: a success earns one share. Whole numbers, since ten tenths of a float are not one."""


class RetryBudget:
    """Tokens by origin: `tokens` of them to start with and at most; only origins with fewer are stored.

    At most `most` origins: the one longest known is dropped for another, which gives it its full budget back.
    """

    def __init__(self, tokens: int, *, most: int) -> None:
        if tokens < 0:
            raise ConfigurationError(f"retry_budget: {tokens!r} is no number of retries; try 10")
        self._full = tokens * _SHARES
        self._most = most
        self._left: dict[str, int] = {}

    def left(self, origin: str) -> int:
        """Say how many retries an origin may be sent now."""
        return self._left.get(origin, self._full) // _SHARES

    def spend(self, origin: str) -> bool:
        """Charge for a retry that is sent; False when there is no token, and it must not be."""
        left = self._left.get(origin, self._full)
        if left < _SHARES:
            return False
        if origin not in self._left and len(self._left) >= self._most:
            del self._left[next(iter(self._left))]
        self._left[origin] = left - _SHARES
        return True

    def earn(self, origin: str) -> None:
        """Add a tenth of a token for a success."""
        left = self._left.get(origin)
        if left is None:
            return
        if left + 1 < self._full:
            self._left[origin] = left + 1
        else:
            del self._left[origin]

    def __bool__(self) -> bool:
        """Whether any origin has less than its full budget."""
        return bool(self._left)

    def clear(self) -> None:
        """Fill every budget."""
        self._left.clear()
