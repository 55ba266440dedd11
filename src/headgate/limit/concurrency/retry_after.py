"""When refused clients are asked to come back: one after the other, as the origin can serve them.

A refused request gets the next free place in a queue outside of the server: behind the requests that wait, and behind
those of its class, and of more important ones, that were refused before it. Without such places the refused all return
when the queue is empty, which is at once; and places alone would be one herd in each second for a client that rounds.
"""

import math
from collections.abc import Callable
from typing import Final

from headgate.limit.concurrency.values import PRIORITIES

MAX_RETRY_AFTER: Final = 300.0
"""Seconds."""
_JITTER: Final = 1.0
"""Seconds up to which is added at random: Retry-After has whole seconds. With more, the seconds differ as by chance."""
_LONGEST_WAIT: Final = 240.0
"""Seconds; clients whose place would be later return at random between this and the maximum."""


class ReturnTimes:
    """Gives refused requests the times of their return; `draw` returns random numbers from 0 to 1."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._served = [0.0] * len(PRIORITIES)  # when the refused of each class will have been served

    def retry_after(self, rank: int, ahead: int, rate: float, *, now: float) -> float:
        """Return the whole seconds after which a request is to return that is refused now.

        `ahead` requests of its class and those above it wait; `rate` of the class are served in a second.
        """
        rate = max(rate, 1e-9)
        place = max(now + ahead / rate, *self._served[: rank + 1]) + 1.0 / rate
        place = self._served[rank] = min(place, now + _LONGEST_WAIT)
        wait = place - now
        jitter = _JITTER if wait < _LONGEST_WAIT else MAX_RETRY_AFTER - _LONGEST_WAIT
        return float(math.ceil(wait + self._draw() * jitter))
