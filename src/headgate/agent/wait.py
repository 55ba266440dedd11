"""What a held request waits for, and both ways to wait for it: in a thread, and in an event loop.

An attempt decides what to wait for, and a transport how.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, TypeAlias

_LONGEST: Final = 3600.0
"""Seconds of one wait at most; after each one, the request asks again whether it is held."""


class Pause:
    """A wait of a number of seconds; `pass_time` is called with them in its place, in tests."""

    __slots__ = ("_pass_time", "seconds")

    def __init__(self, seconds: float, pass_time: Callable[[float], None] | None = None) -> None:
        self.seconds = min(max(seconds, 0.0), _LONGEST)
        self._pass_time = pass_time

    def block(self) -> None:
        """Sleep."""
        (self._pass_time or time.sleep)(self.seconds)

    async def settle(self) -> None:
        """Sleep, and let the event loop go on."""
        if self._pass_time is not None:
            self._pass_time(self.seconds)
        elif in_asyncio():
            import asyncio

            await asyncio.sleep(self.seconds)
        else:
            import anyio

            await anyio.sleep(self.seconds)


class FetchWait:
    """A wait for the end of a fetch, with a maximum number of seconds.

    Any number of threads and event loops may wait for one fetch; it goes on if some of them give up.
    """

    __slots__ = ("_finished", "seconds")

    def __init__(self, finished: "Future[None]", seconds: float) -> None:
        self._finished = finished
        self.seconds = min(max(seconds, 0.0), _LONGEST)

    def block(self) -> None:
        """Wait for it in this thread."""
        with suppress(TimeoutError):
            self._finished.result(self.seconds)

    async def settle(self) -> None:
        """Wait for it and let the event loop go on."""
        if in_asyncio():
            import asyncio

            await asyncio.wait([asyncio.wrap_future(self._finished)], timeout=self.seconds)
            return
        import trio

        event, token = trio.Event(), trio.lowlevel.current_trio_token()

        def wake(_: object) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(event.set)

        self._finished.add_done_callback(wake)
        with trio.move_on_after(self.seconds):
            await event.wait()


Wait: TypeAlias = Pause | FetchWait
"""Something to wait for before asking again: `block` in a thread, `settle` in an event loop of asyncio or trio."""


def in_asyncio() -> bool:
    """Return whether an event loop of asyncio is running in this thread."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
