"""The states of a client's connection, and what leads from one to another.

::

    WAITING ◄──► IDLE ──► READING_HEAD
                 ▲  │          │
                 │  └──────────┴──► DECIDING ──► DELAYED
                 │                   │  │  │        │
                 │                   │  │  └──► RESPONDING
                 ├───────────────────┘  │           │
                 ├── DISCARDING ◄───────┘           │
                 └──────────────────────────────────┘

From every open state the last response leads to LINGERING, and the connection's end to CLOSED.
"""

import enum

__all__ = ["READY", "TRANSITIONS", "Event", "State"]


class State(enum.Enum):
    """What a client's connection does at present."""

    IDLE = "no byte of the next request has arrived"
    READING_HEAD = "part of a request head has arrived"
    WAITING = "requests that were sent ahead wait for the loop's next turn, or until the client reads"
    DECIDING = "a request head has been read; what becomes of it is decided before anything else happens"
    DELAYED = "the request waits for its release"
    RESPONDING = "an exchange, or the response from a file, is under way"
    DISCARDING = "the request is answered; the rest of its body is read and discarded"
    LINGERING = "the last response is sent; what still arrives is discarded, so that the client gets to read it"
    CLOSED = "the connection is closed, closes, or belongs to a tunnel"

    __hash__ = object.__hash__  # in C, unlike that of Enum: each request passes the table several times


class Event(enum.Enum):
    """What leads from one state to another."""

    HEAD_STARTED = "an incomplete request head has arrived"
    HELD_BACK = "requests that were sent ahead must wait"
    RESUMED = "requests that were sent ahead may be read"
    REQUEST_READ = "a request head is complete"
    DELAYED = "the request must wait"
    RESPONSE_STARTED = "an exchange or a file response has begun"
    ANSWERED_EARLY = "the response is sent before the request's body was read"
    DONE = "response and request are complete"
    LAST_RESPONSE = "no further request will be read"
    CLOSE = "the connection ends"

    __hash__ = object.__hash__


READY = frozenset({State.IDLE, State.READING_HEAD})
"""The states in which the next request may be read."""

_LAST = {Event.LAST_RESPONSE: State.LINGERING, Event.CLOSE: State.CLOSED}

TRANSITIONS: dict[State, dict[Event, State]] = {
    State.IDLE: {
        Event.HEAD_STARTED: State.READING_HEAD,
        Event.HELD_BACK: State.WAITING,
        Event.REQUEST_READ: State.DECIDING,
        **_LAST,
    },
    State.READING_HEAD: {Event.REQUEST_READ: State.DECIDING, **_LAST},
    State.WAITING: {Event.RESUMED: State.IDLE, **_LAST},
    State.DECIDING: {
        Event.DELAYED: State.DELAYED,
        Event.RESPONSE_STARTED: State.RESPONDING,
        Event.ANSWERED_EARLY: State.DISCARDING,
        Event.DONE: State.IDLE,
        **_LAST,
    },
    State.DELAYED: {Event.RESPONSE_STARTED: State.RESPONDING, **_LAST},
    State.RESPONDING: {Event.DONE: State.IDLE, **_LAST},
    State.DISCARDING: {Event.DONE: State.IDLE, **_LAST},
    State.LINGERING: {Event.CLOSE: State.CLOSED},
    State.CLOSED: {Event.CLOSE: State.CLOSED},
}
"""From each state, where an event leads; an event that is not listed is a defect of the gateway."""
