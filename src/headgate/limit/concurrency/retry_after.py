"""When rejected clients are asked to come back: one after the other, as the origin can serve them.

A rejected request gets the next slot of a queue outside of the server: behind the requests that wait, and behind those
of its class, and of more important ones, that were rejected before it. All requests of one client have one slot.
Without such slots all return when the queue is empty, which is at once.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from headgate.limit.concurrency.values import PRIORITIES

MAX_RETRY_AFTER: Final = 300.0
"""Seconds."""
MAX_FLOWS: Final = 10_000
"""Clients whose slots are remembered: untrusted input decides how many there are."""
_JITTER: Final = 1.0
"""Seconds up to which is added at random: Retry-After has whole seconds."""
_LONGEST_WAIT: Final = 240.0
"""Seconds; clients whose slot would be later return at random between this and the maximum."""


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
