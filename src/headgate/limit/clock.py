"""A clock for stored instants: it continues when the wall clock is set back.

This module reads no clock: the time is an argument. A hold made before the wall clock was set back by an hour would
last an hour longer. So stored instants are seconds of a clock that is never set back; they are converted to wall-clock
time when they are returned.
"""

import math

from headgate.release import ASAP

TOLERANCE = 2.0
"""Seconds that a reading may be earlier than the previous one: a thread may wait for a lock after reading the clock,
and NTP makes small corrections. A larger difference means that the clock was set back."""


class SteadyClock:
    """Wall-clock time plus the whole seconds by which the wall clock was set back."""

    __slots__ = ("behind", "latest", "steps")

    def __init__(self) -> None:
        self.behind = 0.0
        """Seconds to add to wall-clock time; whole seconds, so that adding them keeps the fraction of a second."""
        self.latest = ASAP
        """The latest instant so far, on this clock."""
        self.steps = 0
        """The number of times that the wall clock was set back."""

    def resume(self, behind: float, latest: float) -> None:
        """Continue another clock, such as that of the previous process; a wall clock set back since then is noticed."""
        self.behind, self.latest = behind, latest

    def read(self, now: float) -> float:
        """Convert the wall-clock time `now` to an instant on this clock."""
        instant = now + self.behind
        if instant > self.latest:
            self.latest = instant
        elif self.latest - instant > TOLERANCE:
            return self.step(instant)
        return instant

    def step(self, instant: float) -> float:
        """Record that the wall clock was set back to `instant`; return the instant on this clock."""
        # Rounded up, so that stored instants are never later than they were.
        seconds = float(math.ceil(self.latest - instant))
        self.behind += seconds
        self.steps += 1
        self.latest = instant + seconds
        return self.latest
