"""Looks at the concurrency limit of a process from time to time: lines for its log, and classes refused for long.

It reads no clock. A line is written when what it says changes, and at most one of a kind in ten seconds; what changes
in the meantime is in the next one. `now` is in seconds of any clock that is never set back.
"""

from collections.abc import Callable, Mapping
from typing import Final

from headgate.limit.concurrency import CONFIGURED, PRIORITIES, ConcurrencyState, Priority
from headgate.limit.concurrency.long_refusals import LongRefusals, RequestCounts

WATCH_INTERVAL: Final = 1.0
"""Seconds between two looks."""
PAUSE: Final = 10.0
"""Seconds between two lines of a kind; also without a refusal before refusals have ended."""
CHANGE: Final = 0.2
"""Share by which a limit changes before it is worth a line."""
_HOUR: Final = 3_600.0


class ConcurrencyWatch:
    """Compares each state with what was logged last; `log` is called with the lines.

    A class most of whose requests were refused for `warn_after` seconds is worth a warning, and again after as long.
    """

    def __init__(self, log: Callable[[str], None], *, warn_after: float) -> None:
        self.warn_after = warn_after
        self._log = log
        self._last: dict[str, float] = {}
        self._limit = 0.0
        self._overloaded = self._refuses = False
        self._refused = 0
        self._refused_at = 0.0
        self._long = LongRefusals(warn_after=warn_after)

    def look(self, state: ConcurrencyState, admitted: Mapping[Priority, int], *, now: float) -> None:
        """Log what has changed; `admitted` is how many requests of each class came to the limit so far."""
        self._look_at_limit(state, now)
        if state.overloaded != self._overloaded and self._may_log("overload", now):
            self._overloaded = state.overloaded
            what = (
                "requests wait too long for the origin: it is overloaded" if state.overloaded else "overload has ended"
            )
            self._log(f"concurrency limit: {what} ({_figures(state)}{_reason(state)})")
        refused = {name: sum(state.refused.get(name, {}).values()) for name in PRIORITIES}
        self._look_at_refusals(state, sum(refused.values()), now)
        counts = {
            name: RequestCounts(max(0, admitted.get(name, 0) - refused[name]), refused[name]) for name in PRIORITIES
        }
        for name in self._long.update(counts, now=now):
            hours = self._long.refused_for(name, now=now) / _HOUR
            self._log(
                f"warning: concurrency limit: most requests of the class {name} were refused for {hours:.0f} hours; "
                "search engines remove pages that fail for one to two days"
            )

    def refused_for(self, now: float) -> dict[Priority, float]:
        """Return for how many seconds most requests of each class have been refused."""
        return {name: self._long.refused_for(name, now=now) for name in PRIORITIES}

    def _look_at_limit(self, state: ConcurrencyState, now: float) -> None:
        if not self._limit:
            self._limit = state.limit  # the limit of the start is not a change
        elif abs(state.limit - self._limit) > CHANGE * self._limit and self._may_log("limit", now):
            self._log(f"concurrency limit: {self._limit:.0f} to {state.limit:.0f}: {state.reason} ({_figures(state)})")
            self._limit = state.limit

    def _look_at_refusals(self, state: ConcurrencyState, refused: int, now: float) -> None:
        if refused != self._refused:
            self._refused, self._refused_at = refused, now
        refuses = refused > 0 and now - self._refused_at < PAUSE
        if refuses != self._refuses and self._may_log("refusals", now):
            self._refuses = refuses
            verb = "would refuse" if state.mode == "monitor" else "refuses"
            what = f"{verb} requests" if refuses else "refuses no more requests"
            self._log(f"concurrency limit: {what} ({_figures(state)}{_reason(state)}, {refused} refused so far)")

    def _may_log(self, kind: str, now: float) -> bool:
        if now - self._last.get(kind, now - PAUSE) < PAUSE:
            return False
        self._last[kind] = now
        return True


def _figures(state: ConcurrencyState) -> str:
    figures = f"limit {state.limit:.0f}, {state.in_flight} in flight, {state.queued} wait"
    if state.reason == CONFIGURED:
        return figures
    return f"{figures}, baseline {state.baseline:.3g} s" if state.baseline else f"{figures}, baseline unknown"


def _reason(state: ConcurrencyState) -> str:
    return "" if state.reason == CONFIGURED else f", last change: {state.reason}"
