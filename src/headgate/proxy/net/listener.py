"""A listening socket: accepting connections, also when the system runs out of descriptors."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

from headgate.proxy.net.poller import READ, Poller
from headgate.proxy.net.sockets import set_inherited_options
from headgate.proxy.refusal import EXHAUSTED

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
                    self._pause()
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
        if self._paused is not None:
            self._paused.cancel()
        else:
            with contextlib.suppress(OSError):
                self.ready(READ)
        self._poller.drop(self._socket.fileno())
        self._socket.close()

    def _pause(self) -> None:
        """Wait: the poller would report the same socket again at once."""
        self._poller.modify(self._socket.fileno(), 0)
        self._paused = asyncio.get_running_loop().call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._poller.modify(self._socket.fileno(), READ)
