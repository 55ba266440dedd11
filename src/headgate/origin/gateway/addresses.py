"""The addresses of the origin: looked up once per time to live, and raced for a connection (RFC 8305)."""

import asyncio
import math
import socket
import time
from collections.abc import Callable, Coroutine
from itertools import chain, zip_longest
from typing import Any, Final, TypeVar

_Connection = TypeVar("_Connection")

TIME_TO_LIVE: Final = 30.0
"""Seconds between two lookups: the system's resolver does not tell how long an answer holds."""
_MIN_INTERVAL: Final = 1.0
"""Seconds between two lookups while no address accepts a connection: the origin may have moved."""
_MAX_WAIT: Final = 1.0
"""Seconds to wait for a new lookup if there is an earlier answer."""
_ATTEMPT_DELAY: Final = 0.25
"""Seconds until the next address is tried as well (RFC 8305, section 8)."""


class OriginAddresses:
    """The addresses of one host, those of its families in turn (section 4), and the last one that worked first."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._found: list[str] = []
        self._looked_up = self._expires = -math.inf
        self._lookup: asyncio.Task[None] | None = None

    async def connect(self, attempt: Callable[[str], Coroutine[Any, Any, _Connection]]) -> _Connection:
        """Return the first connection that an attempt makes; raises the `OSError` of the last one if all fail.

        uvloop's `create_connection` tries addresses one after the other, each until it fails.
        """
        left = [*await self._get()]
        pending: set[asyncio.Task[_Connection]] = set()
        try:
            while True:
                if left:
                    pending.add(asyncio.create_task(attempt(left[0]), name=left.pop(0)))
                timeout = _ATTEMPT_DELAY if left else None
                done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                # With several at once, the pool closes those that are not used.
                for task in sorted(done, key=lambda one: one.exception() is not None):
                    if task.exception() is None or not (left or pending):
                        self._found.sort(key=lambda address: address != task.get_name())
                        return task.result()
        finally:
            for task in pending:
                task.cancel()

    def expire(self) -> None:
        """Take that no address accepts a connection: look them up again soon."""
        self._expires = min(self._expires, self._looked_up + _MIN_INTERVAL)

    async def _get(self) -> list[str]:
        now = time.monotonic()
        is_due = now >= self._expires
        if is_due:
            self._looked_up, self._expires = now, now + TIME_TO_LIVE
            self._lookup = asyncio.get_running_loop().create_task(self._look_up())
        if self._lookup is not None and (is_due or not self._found):
            await asyncio.wait([self._lookup], timeout=_MAX_WAIT if self._found else None)
        if not self._found:
            raise OSError("the name of the origin cannot be looked up")
        return self._found

    async def _look_up(self) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            self.expire()  # an earlier answer stays
        else:
            first = [str(where[0]) for family, *_, where in found if family == found[0][0]]
            others = [str(where[0]) for family, *_, where in found if family != found[0][0]]
            self._found = [one for one in chain(*zip_longest(first, others)) if one is not None]
