"""The states of a client's connection, and the table of their transitions.

An event that is not in the table is a defect of the gateway. With TLS, HANDSHAKE comes first::

    WAITING ◄──► IDLE ──► READING_HEAD
                 ▲  │          │
                 │  └──────────┴──► DECIDING ◄──► DELAYED, QUEUED
                 │                   │  │  │
                 │                   │  │  └──► RESPONDING
                 ├───────────────────┘  │           │
                 ├── DISCARDING ◄───────┘           │
                 └──────────────────────────────────┘

A last response leads to LINGERING, and the connection's end from every state to CLOSED.
"""

import enum

# `__hash__` is that of object, in C: each request uses a table several times, and that of Enum is in Python.


class ClientState(enum.Enum):
    """The state of a client's connection."""

    HANDSHAKE = "the handshake of TLS is under way"
    IDLE = "no byte of the next request has arrived"
    READING_HEAD = "part of a request head has arrived"
    WAITING = "requests that were sent ahead wait for the loop's next turn, or until the client reads"
    DECIDING = "a request head has been read; what becomes of it is decided before anything else happens"
    DELAYED = "the request waits for its release"
    QUEUED = "the request waits for a permit"
    RESPONDING = "an exchange, or the response from a file, is under way"
    DISCARDING = "the request is answered; the rest of its body is read and discarded"
    LINGERING = "the last response is sent; what still arrives is discarded, so that the client gets to read it"
    CLOSED = "the connection is closed, closes, or belongs to a tunnel"

    __hash__ = object.__hash__


class ClientEvent(enum.Enum):
    """An event that changes the state."""

    HANDSHAKE_STARTED = "the connection begins with TLS"
    HANDSHAKE_DONE = "the handshake is complete"
    HEAD_STARTED = "an incomplete request head has arrived"
    HELD_BACK = "requests that were sent ahead must wait"
    RESUMED = "requests that were sent ahead may be read"
    REQUEST_READ = "a request head is complete"
    DELAYED = "the request must wait for its release"
    QUEUED = "the request must wait for a permit"
    RELEASED = "the wait of the request is over"
    RESPONSE_STARTED = "an exchange or a file response has begun"
    ANSWERED_EARLY = "the response is sent before the request's body was read"
    DONE = "response and request are complete"
    LAST_RESPONSE = "no further request will be read"
    CLOSE = "the connection ends"

    __hash__ = object.__hash__


READY = frozenset({ClientState.IDLE, ClientState.READING_HEAD})
"""The states in which the next request may be read."""

CLIENT_TRANSITIONS: dict[ClientState, dict[ClientEvent, ClientState]] = {
    ClientState.HANDSHAKE: {
        ClientEvent.HANDSHAKE_DONE: ClientState.IDLE,
        ClientEvent.CLOSE: ClientState.CLOSED,
    },
    ClientState.IDLE: {
        ClientEvent.HANDSHAKE_STARTED: ClientState.HANDSHAKE,
        ClientEvent.HEAD_STARTED: ClientState.READING_HEAD,
        ClientEvent.HELD_BACK: ClientState.WAITING,
        ClientEvent.REQUEST_READ: ClientState.DECIDING,
        ClientEvent.LAST_RESPONSE: ClientState.LINGERING,
        ClientEvent.CLOSE: ClientState.CLOSED,
    },
    ClientState.READING_HEAD: {
        ClientEvent.REQUEST_READ: ClientState.DECIDING,
        ClientEvent.LAST_RESPONSE: ClientState.LINGERING,
        ClientEvent.CLOSE: ClientState.CLOSED,
    },
    ClientState.WAITING: {ClientEvent.RESUMED: ClientState.IDLE, ClientEvent.CLOSE: ClientState.CLOSED},
    ClientState.DECIDING: {
        ClientEvent.DELAYED: ClientState.DELAYED,
        ClientEvent.QUEUED: ClientState.QUEUED,
        ClientEvent.RESPONSE_STARTED: ClientState.RESPONDING,
        ClientEvent.ANSWERED_EARLY: ClientState.DISCARDING,
        ClientEvent.DONE: ClientState.IDLE,
        ClientEvent.LAST_RESPONSE: ClientState.LINGERING,
        ClientEvent.CLOSE: ClientState.CLOSED,
    },
    ClientState.DELAYED: {ClientEvent.RELEASED: ClientState.DECIDING, ClientEvent.CLOSE: ClientState.CLOSED},
    ClientState.QUEUED: {ClientEvent.RELEASED: ClientState.DECIDING, ClientEvent.CLOSE: ClientState.CLOSED},
    ClientState.RESPONDING: {
        ClientEvent.DONE: ClientState.IDLE,
        ClientEvent.LAST_RESPONSE: ClientState.LINGERING,
        ClientEvent.CLOSE: ClientState.CLOSED,
    },
    ClientState.DISCARDING: {ClientEvent.DONE: ClientState.IDLE, ClientEvent.CLOSE: ClientState.CLOSED},
    ClientState.LINGERING: {ClientEvent.CLOSE: ClientState.CLOSED},
    ClientState.CLOSED: {ClientEvent.CLOSE: ClientState.CLOSED},
}
