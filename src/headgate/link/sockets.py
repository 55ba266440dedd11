"""Sockets of the bus with everything bounded, and the sentences about those that cannot be had.

This file knows nothing of messages.
"""

import asyncio
import os
import socket as plain
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import zmq

from headgate.errors import LinkError
from headgate.link.address import Endpoints, endpoints

__all__ = ["NOBLOCK", "SNDMORE", "Socket", "bound", "connected", "descriptor", "opened", "let_go"]

Socket = zmq.Socket[bytes]

# Plain integers: pyzmq takes four times as long to read its own enumerations.
NOBLOCK: Final = int(zmq.NOBLOCK)
SNDMORE: Final = int(zmq.SNDMORE | zmq.NOBLOCK)

_PORT_TRIES = 512
"""Where thousands of connections have just ended, nearly every other port is taken for a minute."""

_OPTIONS: tuple[tuple[int, int], ...] = (
    (zmq.LINGER, 0),  # closing never waits for a peer
    (zmq.RECONNECT_IVL, 100),
    (zmq.RECONNECT_IVL_MAX, 2_000),
    (zmq.HANDSHAKE_IVL, 10_000),  # a connection that says nothing is not kept
    (zmq.BACKLOG, 1_024),
    # A peer's host that vanished is noticed within half a minute by TCP itself. ZMTP heartbeats would do it too, but
    # a peer with a libzmq before 4.2 does not answer them, and would be disconnected for ever.
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 15),
    (zmq.TCP_KEEPALIVE_INTVL, 5),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    (zmq.TCP_MAXRT, 30_000),
)


def opened(context: "zmq.Context[Socket]", kind: int, *, queue: int, largest: int) -> Socket:
    """Open a socket that queues at most `queue` messages for and from each peer, frames of at most `largest` bytes."""
    socket = context.socket(kind)
    for option, value in _OPTIONS:
        socket.setsockopt(option, value)
    socket.setsockopt(zmq.SNDHWM, queue)
    socket.setsockopt(zmq.RCVHWM, queue)
    socket.setsockopt(zmq.MAXMSGSIZE, largest)
    return socket


def connected(accounting: Socket, control: Socket, address: str) -> Endpoints:
    """Connect both sockets to the master at `address`, which need not be there yet."""
    pair = endpoints(address)
    for socket, endpoint in zip((accounting, control), pair, strict=True):
        # A DNS name may lead to either family; an IPv4 address is tried as it stands.
        socket.setsockopt(zmq.IPV6, int(endpoint.startswith("tcp://")))
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise LinkError(f"{endpoint} cannot be connected to ({_reason(error)}); name a master's address") from None
    return pair


def bound(accounting: Socket, control: Socket, address: str) -> Endpoints:
    """Bind both sockets; give what they are bound to, a port left to the system included.

    Raises `LinkError`, which names the address that cannot be had.
    """
    pair = endpoints(address)
    scheme, _, rest = pair.accounting.partition("://")
    if scheme == "ipc":
        _refuse_taken_paths(pair)
    if scheme != "tcp":
        return Endpoints(_bind(accounting, pair.accounting), _bind(control, pair.control))
    host, _, port = rest.rpartition(":")
    numeric = _numeric(host, address)
    for socket in (accounting, control):
        socket.setsockopt(zmq.IPV6, int(":" in numeric))
    if port != "0":
        first = _bind(accounting, f"tcp://{numeric}:{port}")
        return Endpoints(first, _bind(control, f"tcp://{numeric}:{int(port) + 1}"))
    return _bind_anywhere(accounting, control, numeric)


def _bind_anywhere(accounting: Socket, control: Socket, host: str) -> Endpoints:
    """Let the system choose a port whose successor is free too."""
    for _ in range(_PORT_TRIES):
        first = _bind(accounting, f"tcp://{host}:0")
        port = int(first.rpartition(":")[2])
        with suppress(LinkError):
            return Endpoints(first, _bind(control, f"tcp://{host}:{port + 1}"))
        accounting.unbind(first)
    raise LinkError(f"tcp://{host}:0: no two ports in a row are free; name a port")


def _bind(socket: Socket, endpoint: str) -> str:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise LinkError(f"{endpoint} cannot be bound ({_reason(error)}); free it or name another address") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _numeric(host: str, address: str) -> str:
    """Give a host as an address: libzmq binds to no names."""
    if host == "*" or host.startswith("["):
        return host
    try:
        family, _, _, _, where = plain.getaddrinfo(host, None, type=plain.SOCK_STREAM)[0]
    except OSError as error:
        raise LinkError(f"{address}: {host} is not an address of this machine ({error.strerror})") from None
    return f"[{where[0]}]" if family == plain.AF_INET6 else str(where[0])


def _refuse_taken_paths(pair: Endpoints) -> None:
    """Refuse a path where somebody answers: libzmq would take it away from them without a word."""
    for endpoint in pair:
        path = endpoint.removeprefix("ipc://")
        with plain.socket(plain.AF_UNIX, plain.SOCK_STREAM) as probe:
            probe.settimeout(0)
            try:
                probe.connect("\0" + path[1:] if path.startswith("@") else path)
            except BlockingIOError:
                pass  # somebody is there, and too busy to answer
            except OSError:
                continue
        raise LinkError(f"{endpoint} cannot be bound (another master answers there); stop it or name another path")


def _reason(error: zmq.ZMQError) -> str:
    """Give the system's words without pyzmq's, which repeat the address."""
    return os.strerror(error.errno or 0)


def descriptor(socket: Socket) -> int:
    """Give the file descriptor that becomes readable when something about the socket may have changed."""
    return int(socket.getsockopt(zmq.FD))


def let_go(sockets: Iterable[Socket], loop: asyncio.AbstractEventLoop | None) -> None:
    """Close sockets, and let go of the event loop that watches them, if one does."""
    for socket in sockets:
        if loop is not None:
            loop.remove_reader(descriptor(socket))
        socket.close()
