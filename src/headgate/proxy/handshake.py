"""A connection during its TLS handshake.

OpenSSL reads and writes the descriptor itself. No memory is allocated for TLS before the first byte has arrived.
"""

import socket
import ssl
from typing import Final

from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.net.sockets import reset
from headgate.proxy.services import Services

_HANDSHAKE_RECORD: Final = b"\x16"
"""First byte of the first record of TLS (RFC 8446, section 5.1)."""


class Handshake:
    """Runs a handshake, then calls `services.handshake_finished`. `surplus` marks a connection beyond the limit."""

    __slots__ = (
        "_closed", "_context", "_descriptor", "_events", "_peer", "_services", "_socket", "_surplus", "deadline",
    )  # fmt: skip

    tunnels = 0
    bytes_passed = (0, 0)

    def __init__(
        self,
        services: Services,
        sock: socket.socket,
        peer: tuple[str, int],
        context: ssl.SSLContext,
        *,
        surplus: bool,
    ) -> None:
        self._services = services
        self._socket = sock
        self._descriptor = sock.fileno()
        self._context = context
        self._events = READ
        self._closed = False
        self._peer = peer
        self._surplus = surplus
        self.deadline = services.loop_state.now + services.timeouts.handshake

    def ready(self, _events: int) -> None:
        """Continue the handshake; see `Pollable`."""
        try:
            if not isinstance(self._socket, ssl.SSLSocket):
                if self._socket.recv(1, socket.MSG_PEEK) != _HANDSHAKE_RECORD:
                    self.abort()
                    return
                self._socket = self._context.wrap_socket(
                    self._socket, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
                )
                self._services.handshake_started(self)
            self._socket.do_handshake()
        except (BlockingIOError, ssl.SSLWantReadError):
            self._wait_for(READ)
        except ssl.SSLWantWriteError:
            self._wait_for(WRITE)
        except (OSError, ValueError):
            self.abort()
        else:
            self._wait_for(READ)
            self._closed = True
            self._services.connection_closed(self)
            self._services.handshake_finished(self._socket, self._peer, surplus=self._surplus)

    def expire(self) -> None:
        """Close: the client is too slow."""
        self.abort()

    def drain(self) -> None:
        """Go on: a request that follows is refused by the decision."""

    def abort(self) -> None:
        """Close at once."""
        if not self._closed:
            self._closed = True
            self._services.loop_state.poller.drop(self._descriptor)
            reset(self._socket)
            self._services.connection_closed(self)

    def _wait_for(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._services.loop_state.poller.modify(self._descriptor, events)
