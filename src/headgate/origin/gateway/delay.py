"""The wait of a delayed request: until its release, or until its client leaves."""

import asyncio
import time
from collections.abc import Callable

from headgate.limit import Accounting, Gatekeeper


class Delay:
    """Calls `release` when the time of a delayed request has come; begins at once."""

    __slots__ = ("_accounting", "_deadline", "_gatekeeper", "_release", "_timer")

    def __init__(self, accounting: Accounting, gatekeeper: Gatekeeper, release: Callable[[], None]) -> None:
        self._accounting = accounting
        self._gatekeeper = gatekeeper
        self._release = release
        # The monotonic clock: a wall clock that is set back must not prolong the wait.
        self._deadline = time.monotonic() + accounting.wait
        self._timer = self._wait(accounting.wait)

    def cancel(self) -> None:
        """End the wait early and free the request's place: its client has left."""
        self._timer.cancel()
        self._gatekeeper.leave(self._accounting)

    def _wait(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        """Release, but never early: loops round their timers, and some down."""
        left = self._deadline - time.monotonic()
        if left > 0:
            self._timer = self._wait(left)
        else:
            self._release()
