"""The states of a client's connection, and the transitions between them.

With TLS or the PROXY protocol, PREFACE comes first::

    WAITING ◄──► IDLE ──► READING_HEAD
                 ▲  │          │
                 │  └──────────┴──► RESPONDING ◄──► DELAYED, QUEUED
                 ├─────────────────────┤
                 └──── DISCARDING ◄────┘

A last response leads to LINGERING, and the connection's end from every state to CLOSED.
"""

import enum


class ClientState(enum.Enum):
    """The state of a client's connection."""

    # That of object, in C: each request uses the table several times, and that of Enum is in Python.
    __hash__ = object.__hash__

    PREFACE = "the header of the PROXY protocol or the handshake of TLS is under way"
    IDLE = "no byte of the next request has arrived"
    READING_HEAD = "part of a request head has arrived"
    WAITING = "requests that were sent ahead wait for the loop's next turn, or until the client reads"
    RESPONDING = "a request is decided on, forwarded or answered"
    DELAYED = "the request waits for its release"
    QUEUED = "the request waits for a permit"
    DISCARDING = "the request is answered; the rest of its body is read and discarded"
    LINGERING = "the last response is sent; what still arrives is discarded, so that the client gets to read it"
    CLOSED = "the connection is closed, closes, or belongs to a tunnel"


READY = frozenset({ClientState.IDLE, ClientState.READING_HEAD})
"""The states in which the next request may be read."""

NEXT_STATES: dict[ClientState, frozenset[ClientState]] = {
    state: frozenset({ClientState.CLOSED, *following})
    for state, following in {
        ClientState.IDLE: {
            ClientState.PREFACE, ClientState.READING_HEAD, ClientState.WAITING, ClientState.RESPONDING,
            ClientState.LINGERING,
        },
        ClientState.PREFACE: {ClientState.IDLE},
        ClientState.READING_HEAD: {ClientState.RESPONDING, ClientState.LINGERING},
        ClientState.WAITING: {ClientState.IDLE},
        ClientState.RESPONDING: {
            ClientState.IDLE, ClientState.DELAYED, ClientState.QUEUED, ClientState.DISCARDING, ClientState.LINGERING,
        },
        ClientState.DELAYED: {ClientState.RESPONDING},
        ClientState.QUEUED: {ClientState.RESPONDING},
        ClientState.DISCARDING: {ClientState.IDLE},
        ClientState.LINGERING: set(),
        ClientState.CLOSED: set(),
    }.items()
}  # fmt: skip
"""The states that may follow each state; any other one is a defect of the gateway."""
