"""What connections, the server and the decision on a CONNECT request give each other.

Connections read requests, relay tunnels and close them; the decision checks who asks, where to and the origin's advice,
and connects to the target; the server has the connections. This file does no I/O and decides nothing.

*Received* and *sent* are from the client's point of view: received came from the target, sent went to it.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from headgate.proxy.poller import LoopState, Pollable

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


class TunnelTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds to wait for a client."""

    handshake: float = 10.0
    """From the accept to the end of the TLS handshake."""
    idle: float = 30.0
    """Until the first byte of the first or the next request head."""
    head: float = 10.0
    """From the first byte of a request head to its last."""
    linger: float = 2.0
    """After the last response, while input is read and discarded so that the response is not lost to a reset."""


class Connection(Pollable, Protocol):
    """A client connection that is not an HTTP/1.1 tunnel."""

    deadline: float
    """When to call `expire`, on the coarse clock."""

    @property
    def tunnels(self) -> int:
        """The number of tunnels inside, including undecided requests."""

    @property
    def bytes_passed(self) -> tuple[int, int]:
        """Bytes that open tunnels inside have received and sent so far."""

    def expire(self) -> None:
        """Handle the deadline."""

    def drain(self) -> None:
        """Start the graceful shutdown."""

    def abort(self) -> None:
        """Close at once, with all tunnels inside."""


class Services(Protocol):
    """What connections need of the server."""

    loop_state: LoopState
    """What all connections share."""
    timeouts: TunnelTimeouts
    """How long to wait for a client."""
    draining: bool
    """Whether the graceful shutdown has started."""
    decide: Decide
    """Decides on CONNECT requests."""
    refuse_early: RefuseEarly
    """Refuses what is not decided on."""

    def start_tunnel(self, client: socket.socket, accepted: AcceptedConnect, early_data: bytes) -> None:
        """Relay between a client's socket, which the poller watches for reads, and its target.

        `early_data` is what the client sent after its request head.
        """

    def handshake_started(self, connection: Connection) -> None:
        """Count a TLS handshake that has started."""

    def handshake_finished(self, sock: ssl.SSLSocket, peer: tuple[str, int], *, surplus: bool) -> None:
        """Continue with the protocol that a handshake selected."""

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection that is closed or has become a tunnel."""

    def tunnel_closed(self) -> None:
        """Check whether the last tunnel has closed."""
