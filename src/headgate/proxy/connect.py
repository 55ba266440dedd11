"""The seam of the prefetch proxy: what a CONNECT asked for, and what becomes of it.

Connections are on one side of it (HTTP/1.1 and HTTP/2 heads, relaying, ends), the decision on the other (who, room,
where, advice, dialling). Only the values below cross. Nothing here opens or reads anything, or decides on a CONNECT.

*Received* and *sent* are always said of the client: received is what came from the target, sent is what went there.
"""

import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

import msgspec

__all__ = ["Asked", "Complain", "Complaint", "Decide", "Ending", "Limits", "Opened", "Refused"]

Ending = Literal["ended", "client_gone", "target_gone", "idle", "max_seconds", "max_bytes", "byte_ratio", "drained"]
"""Why a tunnel is over: both sides said that they were done; one of them was lost before that; a limit of the
tunnel's own; the end of the proxy."""

_HANDSHAKE_AND_REQUEST: Final = 1 << 14
"""Bytes that a client may be ahead of its ratio of received to sent by: it speaks first, and before each answer."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One CONNECT whose head is well-formed."""

    authority: str
    """What it asks for, as received (ASCII, without spaces or control characters); whether it is HOST:PORT at all is
    for the decision to find out."""
    fields: Sequence[tuple[str, str]] = ()
    """Every field in order: name in lower case, value as latin-1 without the whitespace about it. Pseudo-header fields
    of HTTP/2 are left out."""
    peer: tuple[str, int]
    """The client's address and port; an IPv4 address at a socket for both families is written as IPv4."""
    protocol: Literal["http/1.1", "h2"] = "http/1.1"
    """What it was asked in."""
    head_bytes: int = 0
    """The bytes of the head as they crossed the socket: before HPACK was undone, and with what one record of TLS adds
    to its content, wherever records begin and end."""
    certified: bool = False
    """Whether the client showed a certificate that its issuer vouched for."""
    draining: bool = False
    """Whether the end of the proxy has begun: no new tunnel is opened then."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one tunnel may take; by default, anything but endless silence."""

    idle: float = 300.0
    """Seconds without a byte in either direction."""
    max_seconds: float = math.inf
    """Seconds from the opening."""
    max_bytes: float = math.inf
    """Bytes, both directions together."""
    byte_ratio: float = 0.0
    """How many bytes a client has to have received for each one sent, those of a handshake and a request left out."""

    @property
    def are_of_bytes(self) -> bool:
        """Whether bytes are limited, and to be looked at while they pass."""
        return self.max_bytes < math.inf or self.byte_ratio > 0

    def room(self, passed: int, most: int) -> int:
        """Say how many bytes, at most so many, to read next: never 0, since only reading tells the end from more."""
        return int(min(most, max(1, self.max_bytes - passed)))

    def broken(self, received: int, sent: int, *, sending: bool) -> Literal["max_bytes", "byte_ratio"] | None:
        """Say which limit a tunnel breaks by passing on what would make its totals these; None if it may.

        The ratio is looked at when something is to be sent: what a client receives can only mend it.
        """
        if received + sent > self.max_bytes:
            return "max_bytes"
        if sending and received < self.byte_ratio * (sent - _HANDSHAKE_AND_REQUEST):
            return "byte_ratio"
        return None


class Opened(msgspec.Struct, kw_only=True):
    """The decision for: a way to the target."""

    socket: socket.socket
    """Connected, non-blocking, and owned by whoever receives this."""
    closed: Callable[[int, int, Ending], None]
    """Called exactly once, when the tunnel is over: bytes received, bytes sent, and why; it must not raise. Also
    called when the client went before it could be told of the tunnel."""
    limits: Limits = Limits()
    """How much and how long."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The decision against."""

    status: int
    """What to answer: 400, 403, 405, 407, 429, 502, 503, 504."""
    fields: Sequence[tuple[str, str]] = ()
    """`Retry-After`, `Proxy-Status` and what else belongs to the answer; not its length, and nothing of the
    connection."""
    reason: str
    """The word that log, metrics and `Proxy-Status` share."""


Decide = Callable[[Asked], Awaitable[Opened | Refused]]
"""Decides on one CONNECT. It is cancelled when the client goes while it thinks, and then leaves nothing open; it never
raises anything else."""

Complaint = Literal["malformed", "method", "connections", "client_connections"]
"""Why a connection or a request is refused before any decision."""

Complain = Callable[[Complaint, tuple[str, int]], Refused]
"""Gives the refusal of what no decision is asked about, for the client at that address, and counts it: a head that is
wrong, a method that is not served, a connection too many, of all clients or of this one."""
