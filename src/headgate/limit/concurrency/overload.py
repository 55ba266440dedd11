"""Tells bursts, which a queue is for, from overload, in which every request would wait.

A class is overloaded when requests of it, or of more important classes, have waited without a break for `interval`, and
until none has waited for as long as a request takes. Under overload a request waits for `target` at most. This is the
distinction of CoDel (RFC 8289), on the time scale of the service: below the capacity, the longest queue of a day lasts
for up to 500 completions, whatever the number of servers.

Rejected clients are asked to come back one after the other, as the origin can serve them. A rejected request gets the
next slot of a queue outside of the server: behind the requests that wait, and behind those of its class, and of more
important ones, that were rejected before it. All requests of one client have one slot. Without such slots all return
when the queue is empty, which is at once.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headgate.limit.concurrency.values import PRIORITIES
from headgate.release import NEVER

MAX_RETRY_AFTER: Final = 300.0
"""Seconds."""
MAX_FLOWS: Final = 10_000
"""Clients whose slots are remembered: untrusted input decides how many there are."""
_JITTER: Final = 1.0
"""Seconds up to which is added at random: Retry-After has whole seconds."""
_LONGEST_WAIT: Final = 240.0
"""Seconds; clients whose slot would be later return at random between this and the maximum."""
_COMPLETIONS: Final = 1000
"""Completions for which a queue may last."""
_LONGEST_INTERVAL: Final = 30.0
"""Seconds, unless ten requests take longer."""
_TARGET: Final = 0.5
"""The time that a request may wait under overload, by the time that it takes."""
_MIN_TARGET: Final = 0.01
"""Seconds; an event loop may be late by some of them."""


class Patience:
    """For how long requests may wait, at a completion rate and a limit."""

    def __init__(self, rate: float, limit: float) -> None:
        self.gap = limit / rate
        """Seconds that a request takes: by Little's law, the number in flight divided by the rate."""
        self.interval = max(10.0 * self.gap, min(_COMPLETIONS / rate, _LONGEST_INTERVAL))
        """Seconds after which a queue is overload."""
        self.target = max(_MIN_TARGET, _TARGET * self.gap)
        """Seconds that a request may wait under overload."""


class Overload:
    """Knows whether one class is overloaded."""

    def __init__(self) -> None:
        self.is_on = False
        self._waits = False
        self._since = self._last = -NEVER  # when the queue began, and when it was last seen

    def look(self, ahead: int, patience: Patience, *, now: float) -> None:
        """Take how many requests of the class, and of those above it, wait."""
        if self._waits:
            self._last = now
        elif not self.is_on or now >= self._last + patience.gap:
            self.is_on, self._since = False, now
        self._waits = ahead > 0
        self.is_on = self.is_on or (self._waits and now >= self._since + patience.interval)

    def wakeup(self, patience: Patience) -> float:
        """Return when `look` is due even if nothing happens."""
        if self._waits:
            return NEVER if self.is_on else self._since + patience.interval
        return self._last + patience.gap if self.is_on else NEVER


class ReturnTimes:
    """Gives rejected requests the times of their return; `draw` returns random numbers from 0 to 1."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._served = [0.0] * len(PRIORITIES)  # when the rejected requests of each class are expected to be served
        self._slots: OrderedDict[tuple[int, bytes], float] = OrderedDict()

    def retry_after(self, rank: int, flow: bytes, ahead: int, rate: float, *, now: float) -> float:
        """Return the whole seconds after which a request is to return that is rejected now.

        `ahead` requests of its class and those above it wait; `rate` are served in a second.
        """
        slot = self._slots.get((rank, flow), now)
        if slot <= now:
            slot = max(now + ahead / rate, *self._served[: rank + 1]) + 1.0 / rate
            self._served[rank] = slot = min(slot, now + _LONGEST_WAIT)
            self._slots[rank, flow] = slot
            self._slots.move_to_end((rank, flow))
            if len(self._slots) > MAX_FLOWS:
                self._slots.popitem(last=False)
        wait = slot - now
        jitter = _JITTER if wait < _LONGEST_WAIT else MAX_RETRY_AFTER - _LONGEST_WAIT
        return float(math.ceil(wait + self._draw() * jitter))
