"""The states of an HTTP/2 connection, and what changes them.

OPEN; DRAINING after the proxy has announced its shutdown, while tunnels go on and new requests are refused; CLOSING
while the final GOAWAY is sent; LINGERING while input is discarded, so that the GOAWAY is not lost to a reset; CLOSED.
"""

import enum
from typing import Final


class ConnectionState(enum.Enum):
    """States of a connection."""

    OPEN = enum.auto()
    DRAINING = enum.auto()
    CLOSING = enum.auto()
    LINGERING = enum.auto()
    CLOSED = enum.auto()


class ConnectionEvent(enum.Enum):
    """What changes the state."""

    DRAIN = "the proxy shuts down"
    CLOSE = "nothing is left to do, or a connection error"
    FLUSHED = "the final GOAWAY is sent"
    LOST = "the client's socket is closed or broken, or the time is over"


TRANSITIONS: Final = {
    (ConnectionState.OPEN, ConnectionEvent.DRAIN): ConnectionState.DRAINING,
    (ConnectionState.OPEN, ConnectionEvent.CLOSE): ConnectionState.CLOSING,
    (ConnectionState.OPEN, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.DRAINING, ConnectionEvent.CLOSE): ConnectionState.CLOSING,
    (ConnectionState.DRAINING, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.CLOSING, ConnectionEvent.FLUSHED): ConnectionState.LINGERING,
    (ConnectionState.CLOSING, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.LINGERING, ConnectionEvent.LOST): ConnectionState.CLOSED,
}
"""The state after an event. An event that is not listed for a state does nothing."""
