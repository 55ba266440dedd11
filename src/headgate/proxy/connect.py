"""The values that pass between connections and the decision on a CONNECT request.

Connections read requests, relay tunnels and close them; the decision checks who asks, where to and the origin's advice,
and connects to the target. This file does no I/O and decides nothing.

*Received* and *sent* are from the client's point of view: received came from the target, sent went to it.
"""

import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import msgspec

CloseReason = Literal[
    "ended", "client_gone", "target_gone", "idle", "max_seconds", "max_bytes", "byte_ratio", "drained"
]
"""Why a tunnel was closed: both sides ended it; the connection to one of them was lost; a limit of the tunnel; the
shutdown of the proxy."""

_HANDSHAKE_ALLOWANCE: Final = 1 << 14
"""Bytes that a client may send before `byte_ratio` applies: it speaks first, in the handshake and with its request."""


class ConnectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A CONNECT request whose head is well-formed."""

    authority: str
    """The target as received: ASCII without spaces or control characters, not yet parsed as HOST:PORT."""
    fields: Sequence[tuple[str, str]] = ()
    """Every field in order: name in lower case, value as latin-1 without surrounding whitespace. Without the
    pseudo-header fields of HTTP/2."""
    peer: tuple[str, int]
    """The client's address and port; an IPv4 address at a dual-stack socket is written as IPv4."""
    protocol: Literal["http/1.1", "h2"] = "http/1.1"
    head_bytes: int = 0
    """Size of the head as received: before HPACK decoding, with the overhead of one TLS record."""
    draining: bool = False
    """Whether the proxy is shutting down, so that no new tunnel may be opened."""


class TunnelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one tunnel. By default only idle time is limited."""

    idle: float = 300.0
    """Seconds without a byte in either direction."""
    max_seconds: float = math.inf
    """Seconds from the opening."""
    max_bytes: float = math.inf
    """Bytes in both directions together."""
    byte_ratio: float = 0.0
    """Bytes that the client must have received for each byte that it sends, beyond those of a handshake and request."""

    @property
    def counts_bytes(self) -> bool:
        """Whether bytes are limited, so that each piece has to be checked."""
        return self.max_bytes < math.inf or self.byte_ratio > 0

    def read_size(self, passed: int, maximum: int) -> int:
        """Return how many bytes to read next; at least 1, since only reading can distinguish an end from more data."""
        return int(min(maximum, max(1, self.max_bytes - passed)))

    def exceeded_by(self, received: int, sent: int, *, sending: bool) -> Literal["max_bytes", "byte_ratio"] | None:
        """Return the limit that a tunnel with these totals exceeds, or None.

        The ratio is checked only when the client sends: what it receives can only improve the ratio.
        """
        if received + sent > self.max_bytes:
            return "max_bytes"
        if sending and received < self.byte_ratio * (sent - _HANDSHAKE_ALLOWANCE):
            return "byte_ratio"
        return None


class AcceptedConnect(msgspec.Struct, kw_only=True):
    """An accepted CONNECT: the connection to the target."""

    socket: socket.socket
    """Connected and non-blocking; the receiver of this value closes it."""
    on_closed: Callable[[int, int, CloseReason], None]
    """Called exactly once when the tunnel is closed, with bytes received, bytes sent and the reason; must not raise.
    Also called if the client left before it could be answered."""
    limits: TunnelLimits = TunnelLimits()


class RefusedConnect(msgspec.Struct, frozen=True, kw_only=True):
    """A refused request: what to answer."""

    status: int
    """400, 403, 405, 407, 429, 502, 503 or 504."""
    fields: Sequence[tuple[str, str]] = ()
    """`Retry-After`, `Proxy-Status` and other fields; without Content-Length and connection-specific fields."""
    reason: str
    """The word that log, metrics and `Proxy-Status` share."""


Decide = Callable[[ConnectRequest], Awaitable[AcceptedConnect | RefusedConnect]]
"""Decides on one CONNECT request. It is cancelled if the client leaves, and then leaves nothing open."""

EarlyReason = Literal["malformed", "method", "connections", "client_connections"]
"""Why a connection or request is refused without a decision."""

RefuseEarly = Callable[[EarlyReason, tuple[str, int]], RefusedConnect]
"""Counts and logs a request or connection that is refused without a decision, and returns its refusal: a malformed
head, an unsupported method, the limit of all connections or of one client's reached."""
