"""Which agents are due in each tick: linked lists in arrays, compiled.

An agent is due in at most one tick, so one field of each agent holds all lists. Each list is in the order in which its
agents were entered, as the lists of the tick world's engine are.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate.lab.kernel.compiled import compiled
from headgate.lab.ticks.engine import TOLERANCE

END: Final = -1
"""The end of a list."""


class Calendar(NamedTuple):
    """The lists of all ticks; the field `following` of the agents links them."""

    length: float
    """The seconds of a tick."""
    ticks: int
    """The number of ticks."""
    first: NDArray[np.int32]
    """The first agent of each tick, or `END`."""
    last: NDArray[np.int32]
    """The last agent of each tick that has a first."""


def calendar(length: float, ticks: int) -> Calendar:
    """Return a calendar without entries."""
    return Calendar(length, ticks, np.full(ticks, END, np.int32), np.full(ticks, END, np.int32))


@compiled
def enter(calendar: Calendar, agents: NDArray[np.void], index: int, tick: int, seconds: float) -> int:
    """Enter an agent that is due `seconds` after a tick; return the tick in which it is due, at most the end."""
    if seconds >= calendar.ticks * calendar.length:  # perhaps infinite
        return calendar.ticks
    due = min(tick + max(1, math.ceil(seconds / calendar.length - TOLERANCE)), calendar.ticks)
    if due < calendar.ticks:
        if calendar.first[due] == END:
            calendar.first[due] = index
        else:
            agents[calendar.last[due]].following = index
        calendar.last[due] = index
        agents[index].following = END
    return due
