"""What received frames mean: the events of an `Http2Engine`."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias


class RequestReceived(NamedTuple):
    """A request head."""

    stream_id: int
    fields: Sequence[tuple[bytes, bytes]]
    head_size: int
    """Bytes of its frames."""
    is_last: bool
    """Whether the client has ended its direction."""


class DataReceived(NamedTuple):
    """A slice of DATA; also padding alone, or the end alone."""

    stream_id: int
    data: memoryview | bytes
    """Valid until the buffer that was received is used again."""
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
