"""What a held request waits for, and both ways to wait for it: in a thread, and in an event loop.

A composition says what to wait for and knows nothing of how; a transport knows nothing of why.
"""

import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

__all__ = ["Flight", "Pause", "Wait"]

_LONGEST: Final = 3600.0
"""Seconds slept at once: what is longer is slept piece by piece, and looked at anew in between."""


class Wait(Protocol):
    """Something to wait for before asking again."""

    def block(self) -> None:
        """Wait, in this thread."""

    async def settle(self) -> None:
        """Wait, and let the event loop go on: asyncio's, or trio's."""


class Pause:
    """Until so many seconds are over."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = min(max(seconds, 0.0), _LONGEST)

    def block(self) -> None:
        """Sleep."""
        time.sleep(self.seconds)

    async def settle(self) -> None:
        """Sleep, and let the event loop go on."""
        if _in_asyncio():
            import asyncio

            await asyncio.sleep(self.seconds)
        else:
            import anyio

            await anyio.sleep(self.seconds)


class Flight:
    """Until a fetch that somebody else makes has landed, for so many seconds at most.

    However many wait, in however many threads and event loops, and whoever of them gives up: the fetch goes on.
    """

    __slots__ = ("_landed", "_seconds")

    def __init__(self, landed: "Future[None]", seconds: float) -> None:
        self._landed = landed
        self._seconds = max(seconds, 0.0)

    def block(self) -> None:
        """Wait for it in this thread."""
        with suppress(TimeoutError):
            self._landed.result(self._seconds)

    async def settle(self) -> None:
        """Wait for it and let the event loop go on."""
        if _in_asyncio():
            import asyncio

            await asyncio.wait([asyncio.wrap_future(self._landed)], timeout=self._seconds)
        else:
            import anyio

            await anyio.to_thread.run_sync(self.block, abandon_on_cancel=True)


def _in_asyncio() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
