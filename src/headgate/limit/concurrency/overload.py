"""Tells the moments at which requests wait from overload, and for how long a request may wait in either.

A class is overloaded when more than `LONGEST_QUEUE` requests of it, and of more important classes, wait, or when some
have waited without a break for as long as `MOST_COMPLETIONS` completions take. Below the capacity, queues end by
themselves: at 0.7 of it, the longest of a day has 27 to 65 requests and lasts for 240 to 500 completions, whatever the
number of servers. The class is not overloaded any more when none has waited for as long as a request usually takes, and
it is overloaded again sooner than the first time.

This is CoDel's distinction of a good from a bad queue (RFC 8289) with an interval on the scale of the service time,
as CoDel's is on that of the round trip.
"""

from typing import Final

from headgate.limit.concurrency.values import PRIORITIES
from headgate.release import NEVER

LONGEST_QUEUE: Final = 64
"""Requests: the longest queue of 1.5 million requests at 0.7 of the capacity (decision 0086)."""
LONG_QUEUE_SHARE: Final = 0.1
"""The share of the interval for which a queue may be longer: herds come and go.

At once: of a herd of 100 at 20 places, 0.82 are refused instead of 0.07; with 0.03 0.48. With 0.3, the first seconds of
overload have waits of 1.8 instead of 0.54 times a request (p99, 20 places).
"""
MOST_COMPLETIONS: Final = 1000
"""Completions for which a queue may last: twice the longest of decision 0086 at 0.7 of the capacity."""
SHORTEST_INTERVAL: Final = 10
"""The interval in times of a request, at least: with many servers, MOST_COMPLETIONS take less than one.

Chosen; 3 and 30 tried: the p99 of waits at 200 places is 0.32 and 0.35 times a request, nothing else changes.
"""
AGAIN_SHARE: Final = 0.3
"""The share of the interval for which a queue may last if it begins within an interval after overload.

A demand above the capacity goes on when overload ends, since what is refused leaves moments without a queue. With 1.0,
four places that take 1 s, 1.5 times the capacity and clients that give up after 5 s, 0.64 of the capacity is served in
time instead of 0.94 (equal times); with 0.1, 20 places serve 0.96 instead of 0.97 at 1.05 times the capacity.
"""
LONGEST_INTERVAL: Final = 30.0
"""Seconds of the interval at most, unless SHORTEST_INTERVAL is longer: every wait has a limit.

It matters for few places: the p99 of waits at four of 0.5 s, from the begin of overload, is 6 times a request; with
10 s 4, but a load of 0.75 may be refused; with 90 s 14.
"""
TARGET: Final = 0.5
"""A request may wait for this share of the usual time, at least: less harms fairness (decision 0086)."""
FEWEST_PLACES: Final = 8
"""The least size of the queue under overload. Chosen; 4 and 16 tried with four places: no effect within chance."""
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
        """Seconds that a request may wait under overload."""
        self.places = 0
        """The size of the queue under overload: what starts within twice the target."""
        self._gap = 0.0
        self._since = [NEVER] * len(PRIORITIES)  # when the queue that still lasts began
        self._long_since = [NEVER] * len(PRIORITIES)  # when it became longer than LONGEST_QUEUE
        self._ended = [0.0] * len(PRIORITIES)  # when the last queue ended
        self._calm_since = [-NEVER] * len(PRIORITIES)  # when the last overload ended

    def adapt(self, duration: float, limit: float, queue_target: float) -> None:
        """Take the usual time of a request, the limit, and the least wait that is allowed."""
        duration = max(duration, queue_target, SHORTEST_DURATION)
        least = SHORTEST_INTERVAL * duration
        self.interval = max(least, min(MOST_COMPLETIONS * duration / max(limit, 1.0), LONGEST_INTERVAL))
        self.target = max(queue_target, TARGET * duration)
        self.places = max(FEWEST_PLACES, round(2.0 * limit * self.target / duration))
        self._gap = duration

    def look(self, rank: int, ahead: int, *, now: float) -> None:
        """Take how many requests of a class, and of those above it, wait."""
        since = self._since[rank]
        if not ahead and since < NEVER:
            self._since[rank] = since = NEVER
            self._ended[rank] = now
        if self.overloaded[rank]:
            if since == NEVER and now >= self._ended[rank] + self._gap:
                self.overloaded[rank] = False
                self._calm_since[rank] = self._ended[rank] + self._gap
        elif now >= self._due(rank):
            self.overloaded[rank] = True
        if ahead and since == NEVER:
            self._since[rank] = now
        if ahead <= LONGEST_QUEUE:
            self._long_since[rank] = NEVER
        elif self._long_since[rank] == NEVER:
            self._long_since[rank] = now

    def wakeup(self, rank: int) -> float:
        """Return when `look` is due even if nothing happens; when a request has waited too long is not considered."""
        if self.overloaded[rank]:
            return self._ended[rank] + self._gap if self._since[rank] == NEVER else NEVER
        return self._due(rank)

    def _due(self, rank: int) -> float:
        """Return when the queue of a class that lasts is overload."""
        since = self._since[rank]
        is_again = since < self._calm_since[rank] + self.interval
        due = since + (AGAIN_SHARE if is_again else 1.0) * self.interval
        return min(due, self._long_since[rank] + LONG_QUEUE_SHARE * self.interval)
