"""What a client connection is given by the server, and what the server needs of a connection."""

import socket
import ssl
from typing import Protocol

import msgspec

from headgate.proxy.connect import AcceptedConnect, Decide, RefuseEarly
from headgate.proxy.poller import LoopState, Pollable


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

    @property
    def loop_state(self) -> LoopState:
        """What all connections share."""

    @property
    def timeouts(self) -> TunnelTimeouts:
        """How long to wait for a client."""

    @property
    def draining(self) -> bool:
        """Whether the graceful shutdown has started."""

    @property
    def decide(self) -> Decide:
        """Decides on CONNECT requests."""

    @property
    def refuse_early(self) -> RefuseEarly:
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
