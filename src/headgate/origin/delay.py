"""The timer of a delayed request, for servers that run on an event loop."""

import asyncio
import time
from collections.abc import Callable

from headgate.limit import Accounting, Gatekeeper


class Delay:
    """Calls `release` at the release time of a delayed request."""

    __slots__ = ("_accounting", "_deadline", "_gatekeeper", "_timer", "release")

    def __init__(self, accounting: Accounting, gatekeeper: Gatekeeper, release: Callable[[], object]) -> None:
        self._accounting = accounting
        self._gatekeeper = gatekeeper
        self.release = release
        # Monotonic: a wall clock that is set back must not prolong the wait.
        self._deadline = time.monotonic() + accounting.wait
        self._timer = self._wait(accounting.wait)

    def cancel(self) -> None:
        """End the wait and free the slot of the request: its client has left."""
        self._timer.cancel()
        self._gatekeeper.cancel(self._accounting)

    def _wait(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        """Release, but never early: event loops round their timers, some of them down."""
        left = self._deadline - time.monotonic()
        if left > 0:
            self._timer = self._wait(left)
        else:
            self.release()
