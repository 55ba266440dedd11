"""Socket options and the sockets that listen."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import struct
from typing import Any, Final

from headgate.proxy.net.endpoint import Address

WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a non-blocking socket raises if nothing can be done now."""

_BACKLOG: Final = 4096
_KEEPALIVE_IDLE: Final = 60
"""Seconds of silence until the system checks whether a client is still there."""
_RECEIVE_BUFFER_SIZE: Final = 1 << 21
"""Bytes: what 150 Mbit/s bring with a round trip of 100 ms; Linux allocates twice as much, for its own needs."""
_PROBE_PORT: Final = 9
"""Any port; nothing is sent to it."""
_RESET: Final = struct.pack("ii", 1, 0)
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def reset(sock: socket.socket) -> None:
    """Close a connection so that the peer sees a reset, not an end."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()


def receive_buffer_size() -> int:
    """Return the value of `SO_RCVBUF` for a socket that is not connected yet; 0 to leave it to the system.

    A receive buffer of Linux grows while it is read fast, to 32 MiB on newer systems (tcp(7), tcp_rmem), and a tunnel
    that stalls would have read ahead by as much. A buffer of a given size does not grow. Where a process may not have
    so much (socket(7), rmem_max), the system's own buffers grow to 6 MiB.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_SIZE)
        granted = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    return _RECEIVE_BUFFER_SIZE if granted >= _RECEIVE_BUFFER_SIZE else 0


def is_local_address(address: Address) -> bool:
    """Return whether a connection to an address would end on this machine.

    Connecting a UDP socket sends no packet and makes the system choose the source address: for a destination on this
    machine, that is the destination itself.
    """
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _PROBE_PORT))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False  # no route to it


async def listening_sockets(host: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """Return sockets that listen at every address of `host` on this machine, with "*" at all addresses.

    With port 0 all have the same free port. Raises `OSError`.
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
                sockets.append(_listening_socket(family, (address[0], chosen, *address[2:]), reuse_port=reuse_port))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error  # such as ::1 of localhost without IPv6
        if missing is not None and not sockets:
            raise missing
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def set_inherited_options(sock: socket.socket) -> None:
    """Set on a listening socket what accepted ones inherit: no Nagle's algorithm, keepalive, a receive buffer size.

    The receive buffer has to be set before a connection is accepted.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    size = receive_buffer_size()
    if size:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    if sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)


def _listening_socket(family: int, address: tuple[Any, ...], *, reuse_port: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
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
