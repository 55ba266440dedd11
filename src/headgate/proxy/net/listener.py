"""Listening sockets, and what is done when the system has no descriptors left."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any

from headgate.proxy.net.poller import READ
from headgate.proxy.net.sockets import receive_buffer
from headgate.proxy.refusal import EXHAUSTED

if TYPE_CHECKING:
    from headgate.proxy.server import TunnelServer

__all__ = ["Listener", "listening_sockets"]

_BACKLOG = 4096
_MOST_PER_TURN = 64
"""Connections accepted in a row before others get their turn."""
_PAUSE = 0.5
"""Seconds without accepting, when there is nothing left to accept with."""
_PROBE_AFTER = 60
"""Seconds of silence until the system asks whether a client is still there."""
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


async def listening_sockets(host: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """Listen at every address of `host` that this machine has, of "*" at all of both families, each with a socket.

    With port 0 all have the same free one. Raises `OSError`.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            chosen = address[1] or (sockets[0].getsockname()[1] if sockets else 0)
            try:
                sockets.append(_listening(family, (address[0], chosen, *address[2:]), reuse_port=reuse_port))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error  # as ::1 of localhost is, where there is no IPv6
        if missing is not None and not sockets:
            raise missing
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _listening(family: int, address: tuple[Any, ...], *, reuse_port: bool) -> socket.socket:
    sock = _Listening(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


class _Listening(socket.socket):
    """Says in plain numbers what it is, which each accepted socket is made with: enumerations take a third of that."""

    family = socket.SocketType.family  # type: ignore[assignment]
    type = socket.SocketType.type  # type: ignore[assignment]


class Listener:
    """One listening socket of a server; see `TunnelServer.start`."""

    __slots__ = ("_pausing", "_server", "_socket", "_tls", "address")

    def __init__(self, server: "TunnelServer", sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        sock.settimeout(0)
        prepare(sock)
        self._server = server
        self._socket = sock
        self._tls = tls
        self._pausing: asyncio.TimerHandle | None = None
        self.address: tuple[str, int] = sock.getsockname()[:2]
        """Host and port."""
        server.poll.watch(sock.fileno(), READ, self)

    def ready(self, _events: int) -> None:
        """Accept what there is; see `Ready`."""
        for _ in range(_MOST_PER_TURN):
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause()
                    return
                continue  # that one is gone already
            sock.settimeout(0)
            host = address[0]
            if host.startswith("::ffff:") and "." in host:
                host = host[7:]  # an IPv4 client at a socket for both
            self._server.enter(sock, (host, address[1]), self._tls)

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use another context from now on, if it is a TLS listener."""
        if self._tls is not None:
            self._tls = tls

    def close(self) -> None:
        """Stop; what the system has accepted already is served still."""
        if self._pausing is not None:
            self._pausing.cancel()
        else:
            with contextlib.suppress(OSError):
                self.ready(READ)
        self._server.poll.drop(self._socket.fileno())
        self._socket.close()

    def _pause(self) -> None:
        """Wait: to be told again at once would help nobody."""
        self._server.poll.change(self._socket.fileno(), 0)
        self._pausing = asyncio.get_running_loop().call_later(_PAUSE, self._go_on)

    def _go_on(self) -> None:
        self._pausing = None
        self._server.poll.change(self._socket.fileno(), READ)


def prepare(sock: socket.socket) -> None:
    """Set on a listening socket what accepted ones inherit: no delay of small pieces, and probes of silent peers.

    And how much is received ahead, which has to be known before anybody connects.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    receives = receive_buffer()
    if receives:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    if sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER)
