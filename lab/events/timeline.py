"""Events in the order of simulated time."""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from headgate.errors import ConfigurationError

MAX_EVENTS: Final = 100_000_000
"""Events of one run; a run that exceeds it is an error, so that no scenario runs for ever."""


class Timeline:
    """Calls actions at their instants; those of one instant by rank, then in the order in which they were scheduled."""

    __slots__ = ("_events", "_scheduled", "now")

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        """Seconds; the instant of the event that happens."""
        self._events: list[tuple[float, int, int, Callable[[Any], None], Any]] = []
        self._scheduled = 0

    def schedule(self, instant: float, action: Callable[[Any], None], argument: Any = None, *, rank: int = 0) -> None:
        """Call `action(argument)` at `instant`, which is not before `now`."""
        number = self._scheduled = self._scheduled + 1
        heappush(self._events, (instant, rank, number, action, argument))

    def run(self, until: float) -> None:
        """Let everything happen that is due before `until`, and continue from there.

        Raises `ConfigurationError` for more than `MAX_EVENTS`, so that no scenario runs for ever.
        """
        events = self._events
        while events and events[0][0] < until:
            self.now, _, _, action, argument = heappop(events)
            action(argument)
            if self._scheduled > MAX_EVENTS:
                raise ConfigurationError(
                    f"more than {MAX_EVENTS:,} events within {self.now:g} s; reduce the load or the number of seconds"
                )
        self.now = until

    def run_through(self, until: float) -> None:
        """Let everything happen that is due until `until`, included."""
        self.run(math.nextafter(until, math.inf))
        self.now = until
