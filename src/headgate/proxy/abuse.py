"""Limits of what one connection may ask for in vain, in HTTP/1.1 as in HTTP/2.

Abuse is not an error (RFC 9113, section 10.5). Each request or frame costs the client next to nothing and the proxy
something: requests that are refused, streams reset before they are answered (CVE-2023-44487), endless SETTINGS and
PING, frames that carry nothing. Each kind has a leaky bucket per connection; a connection that overflows one is closed.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

AbuseKind: TypeAlias = Literal[
    "failed requests", "resets", "settings", "pings", "idle frames", "empty DATA", "late DATA", "WINDOW_UPDATE",
    "head bytes",
]  # fmt: skip


class AbuseLimit(NamedTuple):
    """How many at once, and how many per second in the long run."""

    burst: float
    per_second: float


ABUSE_LIMITS: Final[Mapping[AbuseKind, AbuseLimit]] = {
    # Requests that are refused, whatever the reason; heads on closed streams, and errors that end a stream.
    "failed requests": AbuseLimit(100, 10),
    # Streams that the client resets before a byte has passed: the decision was made in vain.
    "resets": AbuseLimit(100, 10),
    # A client sends one or two in its life, one that tunes its windows a few more.
    "settings": AbuseLimit(50, 1),
    # Some clients measure the round trip time once per round trip while bytes flow.
    "pings": AbuseLimit(1000, 100),
    # PRIORITY, GOAWAY, frames of unknown types, resets of closed streams.
    "idle frames": AbuseLimit(1000, 100),
    "empty DATA": AbuseLimit(100, 10),
    # Bytes that were in flight when a stream was reset, and a cost for each frame, since h2 answers it.
    "late DATA": AbuseLimit(1 << 22, 1 << 20),
    # Beyond those that DATA is answered with.
    "WINDOW_UPDATE": AbuseLimit(1000, 100),
    # An indexed head has 50 bytes, one with a token 500; decoding Huffman code takes 0.3 µs a byte.
    "head bytes": AbuseLimit(1 << 20, 1 << 18),
}


class AbuseLimiter:
    """The leaky buckets of one connection."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[AbuseKind, tuple[float, float]] = {}

    def add(self, kind: AbuseKind, amount: float = 1, *, now: float) -> bool:
        """Count one more, or `amount` more (less, if negative); returns whether that exceeds the limit."""
        limit = ABUSE_LIMITS[kind]
        level, before = self._levels.get(kind, (0.0, now))
        level = max(0.0, max(0.0, level - (now - before) * limit.per_second) + amount)
        self._levels[kind] = (level, now)
        return level > limit.burst
