"""Sockets: the endpoints that they connect to, their options, the TLS context of a listener, and resets."""

import contextlib
import socket
import ssl
import struct
from typing import Final

import msgspec

from headgate.errors import explaining
from headgate.fetch.destinations import Address


class Endpoint(msgspec.Struct, frozen=True):
    """An address and a port to connect to."""

    address: Address
    port: int
    host: str = ""
    """The address as text, which is what the socket calls take; computed once, since it is used for each attempt."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "host", str(self.address))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a non-blocking socket raises if nothing can be done now."""

_BACKLOG: Final = 4096
_KEEPALIVE_IDLE: Final = 60
"""Seconds of silence until the system checks whether a client is still there."""
_RECEIVE_BUFFER_SIZE: Final = 1 << 21
"""Bytes: what 150 Mbit/s bring with a round trip of 100 ms; Linux allocates twice as much, for its own needs."""
_MAX_UNSENT: Final = 1 << 18
_PROBE_PORT: Final = 9
"""Any port; nothing is sent to it."""
_RESET: Final = struct.pack("ii", 1, 0)


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


def listening_socket(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a socket that listens at a numeric address. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


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


def limit_unsent(sock: socket.socket) -> None:
    """Limit what the system queues for the peer: everything behind it is delayed by as much."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with contextlib.suppress(OSError):  # not TCP
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT)


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """Return the context of a TLS listener from PEM files, with session tickets, offering HTTP/2 and HTTP/1.1.

    Raises `ConfigurationError` if a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2", "http/1.1"])
    with explaining(f"certificate {cert!r} and key {key!r} cannot be used", "give PEM files that match"):
        context.load_cert_chain(cert, key)
    return context


def record_overhead(sock: socket.socket) -> int:
    """Return the bytes that one TLS record adds to its content; 0 without TLS.

    A header of 5, and in TLS 1.3 a type and a tag of 16 (RFC 8446, 5.2); in TLS 1.2 a nonce of 8 and that tag
    (RFC 5288), with other ciphers a few less.
    """
    if not isinstance(sock, ssl.SSLSocket):
        return 0
    return 22 if sock.version() == "TLSv1.3" else 29


def shutdown_write(sock: socket.socket) -> None:
    """Send close_notify, if inside TLS, and FIN. Later input must not be read as TLS."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(sock, ssl.SSLSocket):
            sock.unwrap()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
