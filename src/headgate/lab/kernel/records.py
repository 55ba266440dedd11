"""The states of agents and groups as records of arrays, with the fields that the objects of the tick world have.

A compiled function takes an element of such an array by its address and changes it in place. A tuple of arrays, one for
each field, would be slower by a factor of a hundred: numba counts the references to each array at each call.
"""

from typing import Final, Protocol

import numpy as np

REQUESTER, POLLER, USER = range(3)
"""The kinds of agents."""

AGENT: Final = np.dtype(
    [
        ("draws", np.uint64),
        ("jitters", np.uint64),
        ("instant", np.float64),
        ("backoff", np.float64),
        ("failures", np.int32),
        ("following", np.int32),
        ("group", np.uint8),
    ],
    align=True,
)
GROUP: Final = np.dtype(
    [
        ("first", np.int64),
        ("end", np.int64),
        ("interval", np.float64),
        ("jitter", np.float64),
        ("start", np.float64),
        ("patience", np.float64),
        ("shortest", np.float64),
        ("longest", np.float64),
        ("refused", np.int64),
        ("answered", np.int64),
        ("failed", np.int64),
        ("visited", np.int64),
        ("lost", np.int64),
        ("kind", np.uint8),
        ("throttled", np.bool_),
    ],
    align=True,
)
COUNTS: Final = ("refused", "answered", "failed", "visited", "lost")
"""The fields of a group that count; they have the names of `headgate.lab.ticks.agents.Counts`."""


class Agent(Protocol):
    """An agent, an element of an array of `AGENT`; the first four fields are 8 bytes each, all are 48."""

    draws: np.uint64
    """The stream of its behaviour."""
    jitters: np.uint64
    """The stream of its throttle."""
    instant: float
    """The last attempt of a requester; when a user gives up, infinite between visits."""
    backoff: float
    """The end of the backoff of its throttle; `ASAP` before the first response."""
    failures: int
    """The failure count of its throttle."""
    following: int
    """The next agent that is due in the same tick."""
    group: int
    """The number of its group."""


class Group(Protocol):
    """A group, an element of an array of `GROUP`."""

    first: int
    """The number of its first agent."""
    end: int
    """The number after that of its last agent."""
    interval: float
    """The interval of a requester or poller, the mean time between two visits of a user."""
    jitter: float
    """The jitter of a requester's interval."""
    start: float
    """The seconds in which the first attempts of requesters lie."""
    patience: float
    """The seconds after which a user gives up."""
    shortest: float
    """The shortest time until a user tries again."""
    longest: float
    """The longest time until a user tries again."""
    refused: int
    answered: int
    failed: int
    visited: int
    lost: int
    kind: int
    """`REQUESTER`, `POLLER` or `USER`."""
    throttled: bool
    """Whether its agents have throttles."""
