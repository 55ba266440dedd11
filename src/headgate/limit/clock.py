"""A clock for instants that are kept: it goes on when the wall clock is set back.

This file reads no clock: it is told the time. A hold or a history made before the wall clock was set back by an hour
would bear on requests for an hour longer. So what is kept is kept in seconds of a clock that is never set back, and
turned into wall-clock time where it leaves.
"""

import math

from headgate.release import ASAP

__all__ = ["TOLERANCE", "SteadyClock"]

TOLERANCE = 2.0
"""Seconds that a reading may be earlier than the last one: a thread may wait for a lock after it has read the clock,
and a time server makes small corrections. More is a clock that was set back."""


class SteadyClock:
    """Wall-clock time plus the whole seconds that the wall clock was set back."""

    __slots__ = ("behind", "latest", "steps")

    def __init__(self) -> None:
        self.behind = 0.0
        """Seconds to add to wall-clock time. Whole ones: adding them changes no fraction of a second."""
        self.latest = ASAP
        """The latest instant so far, on this clock."""
        self.steps = 0
        """How often the wall clock was set back."""

    def read(self, now: float) -> float:
        """Return the instant on this clock that wall-clock time `now` is."""
        instant = now + self.behind
        if instant > self.latest:
            self.latest = instant
        elif self.latest - instant > TOLERANCE:
            return self.step(instant)
        return instant

    def step(self, instant: float) -> float:
        """Take note that the wall clock was set back to `instant`; return the instant that it is."""
        # Up, so that nothing that is kept lasts longer than it would have.
        seconds = float(math.ceil(self.latest - instant))
        self.behind += seconds
        self.steps += 1
        self.latest = instant + seconds
        return self.latest
