"""The events of an `Http2Engine`, which say what received frames mean, and the states of an `Http2Connection`.

States: OPEN; DRAINING after the proxy has announced its shutdown, while tunnels go on and new requests are refused;
CLOSING while the final GOAWAY is sent; LINGERING while input is discarded, so that the GOAWAY is not lost to a reset;
CLOSED.
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from headgate.proxy.http2.frames import DataReceived


class RequestReceived(NamedTuple):
    """A request head."""

    stream_id: int
    fields: Sequence[tuple[bytes, bytes]]
    head_size: int
    """Bytes of its frames."""
    is_last: bool
    """Whether the client has ended its direction."""


class StreamReset(NamedTuple):
    """A stream is over: reset by the client, or here for an error of the client's."""

    stream_id: int


class WindowIncreased(NamedTuple):
    """More may be sent on a stream; 0 stands for all streams."""

    stream_id: int


class PingAnswered(NamedTuple):
    """The answer to a PING."""

    data: bytes


class GoawayReceived(NamedTuple):
    """The client will open no more streams."""


Event: TypeAlias = RequestReceived | DataReceived | StreamReset | WindowIncreased | PingAnswered | GoawayReceived


class Http2State(enum.Enum):
    """States of a connection."""

    OPEN = enum.auto()
    DRAINING = enum.auto()
    CLOSING = enum.auto()
    LINGERING = enum.auto()
    CLOSED = enum.auto()


class Http2Event(enum.Enum):
    """What changes the state."""

    DRAIN = "the proxy shuts down"
    CLOSE = "nothing is left to do, or a connection error"
    FLUSHED = "the final GOAWAY is sent"
    LOST = "the client's socket is closed or broken, or the time is over"


_S, _E = Http2State, Http2Event
TRANSITIONS: Final = {
    (_S.OPEN, _E.DRAIN): _S.DRAINING,
    (_S.OPEN, _E.CLOSE): _S.CLOSING,
    (_S.OPEN, _E.LOST): _S.CLOSED,
    (_S.DRAINING, _E.CLOSE): _S.CLOSING,
    (_S.DRAINING, _E.LOST): _S.CLOSED,
    (_S.CLOSING, _E.FLUSHED): _S.LINGERING,
    (_S.CLOSING, _E.LOST): _S.CLOSED,
    (_S.LINGERING, _E.LOST): _S.CLOSED,
}
"""The state after an event. An event that is not listed for a state does nothing."""
