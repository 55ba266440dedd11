"""The smallest and the largest of the values of the last minute, in constant memory.

This module opens no socket and reads no clock.
"""

from collections import deque
from typing import Final, NamedTuple

from headgate.release import ASAP, NEVER

_SLOT: Final = 10.0
"""Seconds that are dropped at once."""
_SLOTS: Final = 6


class Extremes(NamedTuple):
    """The smallest and the largest of some values."""

    least: float
    greatest: float


class SlidingRange:
    """The extremes of the values added in the last 50 to 60 seconds."""

    def __init__(self) -> None:
        self._slots: deque[tuple[float, Extremes]] = deque(maxlen=_SLOTS)
        self._number = ASAP
        self._least, self._greatest = NEVER, ASAP

    def add(self, value: float, now: float) -> None:
        """Add a value at `now`, seconds since 1970; after a clock was set back, values of the future are dropped."""
        number = now // _SLOT
        if number != self._number:
            self._slots.append((self._number, Extremes(self._least, self._greatest)))
            self._number = number
            self._least = self._greatest = value
        elif value < self._least:
            self._least = value
        elif value > self._greatest:
            self._greatest = value

    def read(self, now: float) -> Extremes | None:
        """Return the extremes as of `now`, None without a value."""
        number = now // _SLOT
        slots = [*self._slots, (self._number, Extremes(self._least, self._greatest))]
        recent = [extremes for slot, extremes in slots if number - _SLOTS < slot <= number]
        if not recent:
            return None
        return Extremes(min(one.least for one in recent), max(one.greatest for one in recent))
