"""Accepting connections: the listening socket, and the TLS handshake of each connection.

OpenSSL reads and writes the descriptor itself. No memory is allocated for TLS before the first byte has arrived.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from headgate.proxy.connect import Services
from headgate.proxy.poller import READ, WRITE, Poller
from headgate.proxy.refusal import EXHAUSTED
from headgate.proxy.sockets import reset, set_inherited_options

_MAX_ACCEPTS: Final = 64
"""Connections accepted in a row before other sockets have their turn."""
_PAUSE: Final = 0.5
"""Seconds without accepting after the system ran out of descriptors."""

OnAccept = Callable[[socket.socket, tuple[str, int], ssl.SSLContext | None], None]
"""Takes an accepted socket, the client's address and port, and the TLS context of the listener."""


class Listener:
    """Accepts connections on a socket, and passes each with the TLS context, if any, to `on_accept`."""

    __slots__ = ("_on_accept", "_paused", "_poller", "_socket", "_tls", "address")

    def __init__(self, sock: socket.socket, *, poller: Poller, tls: ssl.SSLContext | None, on_accept: OnAccept) -> None:
        sock.settimeout(0)
        set_inherited_options(sock)
        self._socket = sock
        self._poller = poller
        self._tls = tls
        self._on_accept = on_accept
        self._paused: asyncio.TimerHandle | None = None
        self.address: tuple[str, int] = sock.getsockname()[:2]
        """Host and port."""
        poller.register(sock.fileno(), READ, self)

    def ready(self, _events: int) -> None:
        """Accept what waits, up to a limit; see `Pollable`."""
        for _ in range(_MAX_ACCEPTS):
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    # Wait: the poller would report the same socket again at once.
                    self._poller.modify(self._socket.fileno(), 0)
                    self._paused = asyncio.get_running_loop().call_later(_PAUSE, self._resume)
                    return
                continue  # the client has left already
            sock.settimeout(0)
            host = address[0]
            if host.startswith("::ffff:") and "." in host:
                host = host[7:]  # an IPv4 client at a dual-stack socket
            self._on_accept(sock, (host, address[1]), self._tls)

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another context for new connections, if this is a TLS listener."""
        if self._tls is not None:
            self._tls = tls

    def close(self) -> None:
        """Stop; what the system has accepted already is still passed on."""
        if self._paused is None:
            with contextlib.suppress(OSError):
                self.ready(READ)
        if self._paused is not None:  # perhaps since this moment
            self._paused.cancel()
        self._poller.drop(self._socket.fileno())
        self._socket.close()

    def _resume(self) -> None:
        self._paused = None
        self._poller.modify(self._socket.fileno(), READ)


_HANDSHAKE_RECORD: Final = b"\x16"
"""First byte of the first record of TLS (RFC 8446, section 5.1)."""


class Handshake:
    """Runs a handshake, then calls `services.handshake_finished`. `surplus` marks a connection above the limit."""

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
