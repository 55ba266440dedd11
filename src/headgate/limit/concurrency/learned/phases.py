"""The phases of a learned limit, and the table of what leads from one to the next.

::

    GROWING ──► SEARCHING ◄──► SEARCH_TRIAL
       │          ▲  │             │
       │          │  ▼             │
       └────────► STEADY ◄─────────┘
                  ▲    ▲
                  ▼    ▼
       LOWER_TRIAL    HIGHER_TRIAL

A phase says what is known (nothing, that the limit is too high, or a baseline) and whether a trial is under way. Demand
is not part of it: a limit that is not reached stays, whatever the phase, and a trial ends without a result. Nor is
monitor mode, in which no request obeys the limit and no trial begins.
"""

import enum
from typing import Final


class Phase(enum.Enum):
    """What is known of an origin, and so what happens to its limit."""

    GROWING = "nothing is known: each response permits one request more"
    SEARCHING = "the limit is too high and no baseline says by how much: it is measured before half of it is tried"
    SEARCH_TRIAL = "half of a limit is tried"
    STEADY = "the limit is measured, and the baseline says whether another one is worth a trial"
    LOWER_TRIAL = "a limit without the queue at the origin is tried"
    HIGHER_TRIAL = "a higher limit is tried"


class Event(enum.Enum):
    """What ends a phase."""

    GROWN = "a baseline is estimated, or the limit is the ceiling"
    NO_BASELINE = "a higher limit brought no throughput, or slow responses, and no baseline is known"
    LOWER = "the trial of a lower limit begins"
    HIGHER = "the trial of a higher limit begins"
    PROVED = "a trial, or the floor, has shown what was to be found out"
    NO_LOSS = "the throughput did not fall with the limit"
    NO_RESULT = "the limit was lowered without a trial, is not reached any more, or other settings are in force"


TRANSITIONS: Final[dict[Phase, dict[Event, Phase]]] = {
    Phase.GROWING: {Event.GROWN: Phase.STEADY, Event.NO_BASELINE: Phase.SEARCHING, Event.NO_RESULT: Phase.STEADY},
    Phase.SEARCHING: {
        Event.LOWER: Phase.SEARCH_TRIAL,
        Event.PROVED: Phase.STEADY,
        Event.NO_RESULT: Phase.SEARCHING,
    },
    Phase.SEARCH_TRIAL: {
        Event.PROVED: Phase.STEADY,
        Event.NO_LOSS: Phase.SEARCHING,  # for what is lower still
        Event.NO_RESULT: Phase.SEARCHING,
    },
    Phase.STEADY: {Event.LOWER: Phase.LOWER_TRIAL, Event.HIGHER: Phase.HIGHER_TRIAL, Event.NO_RESULT: Phase.STEADY},
    Phase.LOWER_TRIAL: {
        Event.PROVED: Phase.STEADY,
        Event.NO_LOSS: Phase.STEADY,
        Event.NO_RESULT: Phase.STEADY,
    },
    Phase.HIGHER_TRIAL: {
        Event.PROVED: Phase.STEADY,
        Event.NO_BASELINE: Phase.SEARCHING,
        Event.NO_RESULT: Phase.STEADY,
    },
}
