"""Limits of what an HTTP/2 client may send: flow control windows, and rates of valid but abusive frames.

Receive windows (RFC 9113, section 5.2) reserve memory: they start at 64 KiB and double up to 512 KiB per stream only
while data is forwarded immediately, so that an idle tunnel reserves little.

Abusive frames (section 10.5) are not errors. Each costs the client next to nothing and the proxy something: streams
reset before they are answered (CVE-2023-44487), endless SETTINGS and PING, frames that carry nothing. Each kind has a
leaky bucket per connection.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.proxy.http2.frames import ErrorCode, Http2Error

INITIAL_WINDOW: Final = 65_535
"""Bytes that both sides may send on a stream, or a connection, before any frame changes it (6.9.2)."""
MAX_STREAM_WINDOW: Final = 1 << 19
"""The largest receive window of a stream."""
MAX_CONNECTION_WINDOW: Final = 1 << 20
"""The largest receive window of a connection."""
MAX_WINDOW: Final = (1 << 31) - 1
"""The largest window that the protocol allows (6.9.1)."""


class ReceiveWindow:
    """What the client may send, on a stream or a connection; `limit` grows to `maximum`."""

    __slots__ = ("_maximum", "_used", "limit")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.limit = INITIAL_WINDOW
        """Bytes that the client may have sent since the last update."""
        self._used = 0

    def receive(self, count: int) -> bool:
        """Count received bytes; returns whether the window allowed them."""
        self._used += count
        return self._used <= self.limit

    def update(self, held: int, *, growth: int = 0) -> int:
        """Return the increment to send, with `held` bytes not forwarded yet; 0 while more than half is open.

        The window may become larger by up to `growth` bytes.
        """
        forwarded = self._used - held
        if forwarded * 2 < self.limit:
            return 0
        grown = max(0, min(growth, self.limit, self._maximum - self.limit))
        self.limit += grown
        self._used = held
        return forwarded + grown


def increased(window: int, increment: int) -> int | None:
    """Return a window that the client increased; None if it is larger than the protocol allows."""
    window += increment
    return window if window <= MAX_WINDOW else None


AbuseKind: TypeAlias = Literal[
    "resets", "mistakes", "settings", "pings", "idle frames", "empty DATA", "late DATA", "WINDOW_UPDATE", "head bytes"
]


class AbuseLimit(NamedTuple):
    """How many at once, and how many per second in the long run."""

    burst: float
    per_second: float


ABUSE_LIMITS: Final[Mapping[AbuseKind, AbuseLimit]] = {
    # Streams that the client resets before a byte has passed: the decision was made in vain.
    "resets": AbuseLimit(100, 10),
    # Requests that are malformed or not CONNECT, streams beyond the maximum, errors that end a stream.
    "mistakes": AbuseLimit(100, 10),
    # A client sends one or two in its life, one that tunes its windows a few more.
    "settings": AbuseLimit(50, 1),
    # Some clients measure the round trip time once per round trip while bytes flow.
    "pings": AbuseLimit(1000, 100),
    # PRIORITY, frames of unknown types, frames about closed streams.
    "idle frames": AbuseLimit(1000, 100),
    "empty DATA": AbuseLimit(100, 10),
    # What was in flight when a stream was reset.
    "late DATA": AbuseLimit(10_000, 1000),
    # Beyond those that DATA is answered with: see `refund`.
    "WINDOW_UPDATE": AbuseLimit(1000, 100),
    # An indexed head has 50 bytes, one with a token 500; decoding Huffman code takes 0.3 µs a byte.
    "head bytes": AbuseLimit(1 << 20, 1 << 18),
}


class AbuseLimiter:
    """Counts what one connection does; raises `Http2Error` above a limit."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[AbuseKind, tuple[float, float]] = {}

    def count(self, kind: AbuseKind, *, now: float, amount: float = 1) -> None:
        """Count one more, or `amount` more."""
        limit = ABUSE_LIMITS[kind]
        level, before = self._levels.get(kind, (0.0, now))
        level = max(0.0, level - (now - before) * limit.per_second) + amount
        self._levels[kind] = (level, now)
        if level > limit.burst:
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, f"too many {kind}")

    def refund(self, kind: AbuseKind, amount: float) -> None:
        """Subtract frames that had a reason."""
        counted = self._levels.get(kind)
        if counted is not None:
            self._levels[kind] = (max(0.0, counted[0] - amount), counted[1])
