"""Tells the moments at which requests wait from overload, and for how long a request may wait in either.

A class is overloaded when requests of it, or of more important classes, have waited without a break for as long as
`LONGEST_QUEUE` completions take. Below the capacity, queues end by themselves: at 0.7 of it, the longest of a day is
half of that, with any number of servers. The class is not overloaded any more when none has waited for as long as a
request usually takes.

This is CoDel's distinction of a good from a bad queue (RFC 8289) with an interval on the scale of the service time,
as CoDel's is on that of the round trip.
"""

from typing import Final

from headgate.limit.concurrency.values import PRIORITIES
from headgate.release import NEVER

LONGEST_QUEUE: Final = 1000
"""Completions."""
SHORTEST_INTERVAL: Final = 10
"""The interval in times of a request, at least: with many servers, LONGEST_QUEUE completions take less than one."""
LONGEST_INTERVAL: Final = 30.0
"""Seconds of the interval at most, unless SHORTEST_INTERVAL is longer: every wait has a limit."""
TARGET: Final = 0.5
"""A request may wait for this share of the usual time, at least."""
FEWEST_PLACES: Final = 8
"""The least size of the queue under overload."""
SHORTEST_DURATION: Final = 0.001
"""Seconds; an event loop does not distinguish shorter ones."""


class OverloadDetector:
    """Knows for each class whether it is overloaded."""

    def __init__(self) -> None:
        self.overloaded = [False] * len(PRIORITIES)
        """For each rank."""
        self.interval = 0.0
        """Seconds for which requests of a class wait without a break before the class is overloaded."""
        self.target = 0.0
        """Seconds that a request may wait under overload; after that, the newest request is next in any case."""
        self.places = 0
        """The size of the queue under overload: what starts within twice the target."""
        self._gap = 0.0
        self._since = [NEVER] * len(PRIORITIES)  # when the queue that still lasts began
        self._ended = [0.0] * len(PRIORITIES)  # when the last queue ended

    def adapt(self, duration: float, limit: float, queue_target: float) -> None:
        """Take the usual time of a request, the limit, and the least wait that is allowed."""
        duration = max(duration, queue_target, SHORTEST_DURATION)
        least = SHORTEST_INTERVAL * duration
        self.interval = max(least, min(LONGEST_QUEUE * duration / max(limit, 1.0), LONGEST_INTERVAL))
        self.target = max(queue_target, TARGET * duration)
        self.places = max(FEWEST_PLACES, round(2.0 * limit * self.target / duration))
        self._gap = duration

    def look(self, rank: int, *, waits: bool, now: float) -> None:
        """Take whether a request of a class, or of one above it, waits."""
        since = self._since[rank]
        if not waits and since < NEVER:
            self._since[rank] = since = NEVER
            self._ended[rank] = now
        if self.overloaded[rank]:
            if since == NEVER and now >= self._ended[rank] + self._gap:
                self.overloaded[rank] = False
        elif since < NEVER and now >= since + self.interval:
            self.overloaded[rank] = True
        if waits and since == NEVER:
            self._since[rank] = now

    def wakeup(self, rank: int) -> float:
        """Return when `look` is due even if nothing happens; when a request has waited too long is not considered."""
        if self.overloaded[rank]:
            return self._ended[rank] + self._gap if self._since[rank] == NEVER else NEVER
        return self._since[rank] + self.interval
