"""Logs when a concurrency limit begins to reject requests, and when it has not for a while.

It reads no clock: `now` is in seconds of any clock that is never set back.
"""

from collections.abc import Callable
from typing import Final

from headgate.limit.concurrency import ConcurrencyState

WATCH_INTERVAL: Final = 1.0
"""Seconds between two looks."""
PAUSE: Final = 10.0
"""Seconds without a rejection before rejections have ended."""


class ConcurrencyWatch:
    """Compares each state with the last one; `log` is called with the lines."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self.due = 0.0
        """When the next look is useful."""
        self._rejected = 0
        self._rejected_at = 0.0
        self._rejects = False

    def look(self, state: ConcurrencyState, *, now: float) -> None:
        """Log what has changed."""
        self.due = now + WATCH_INTERVAL
        rejected = sum(sum(reasons.values()) for reasons in state.rejected.values())
        if rejected != self._rejected:
            self._rejected, self._rejected_at = rejected, now
        rejects = rejected > 0 and now - self._rejected_at < PAUSE
        if rejects != self._rejects:
            self._rejects = rejects
            verb = "would reject" if state.mode == "monitor" else "rejects"
            what = f"{verb} requests" if rejects else "rejects no more requests"
            now_there = f"limit {state.limit:.0f}, {state.in_flight} in flight, {state.queued} wait"
            self._log(f"concurrency limit: {what} ({now_there}, {rejected} rejected so far)")
