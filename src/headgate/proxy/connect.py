"""The values that pass between connections and the decision on a CONNECT request.

Connections read requests, relay tunnels and close them; the decision checks who asks, where to and the origin's advice,
and connects to the target. This file does no I/O and decides nothing.

*Received* and *sent* are from the client's point of view: received came from the target, sent went to it.
"""

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import msgspec

CloseReason = Literal["ended", "client_gone", "target_gone", "idle", "drained"]
"""Why a tunnel was closed: both sides ended it; the connection to one of them was lost; nothing passed for too long;
the shutdown of the proxy."""

DEFAULT_IDLE: Final = 300.0
"""Seconds without a byte in either direction until a tunnel is closed, unless another limit is given."""


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


class AcceptedConnect(msgspec.Struct, kw_only=True):
    """An accepted CONNECT: the connection to the target."""

    socket: socket.socket
    """Connected and non-blocking; the receiver of this value closes it."""
    on_closed: Callable[[int, int, CloseReason], None]
    """Called exactly once when the tunnel is closed, with bytes received, bytes sent and the reason; must not raise.
    Also called if the client left before it could be answered."""
    idle: float = DEFAULT_IDLE
    """Seconds without a byte in either direction until the tunnel is closed."""


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
