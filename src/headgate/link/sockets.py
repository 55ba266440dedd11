"""The sockets of the bus: their addresses, and how they are opened, bound and connected with limits on every queue.

This module does not know messages. Accounting uses the configured port, 10004 by default, and control the next port
(smockron.txt, Low-Level Proto: "master tcp:10004 SUB", "master tcp:10005 PUB").

A `LoopDriver` drives sockets from an event loop. A ZeroMQ descriptor signals new messages once, not for as long as
messages are waiting: after a turn that left messages, the next one follows at once.
"""

import asyncio
import ipaddress
import os
import random
import re
import socket as plain
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import zmq

from headgate.config.section import is_host, is_loopback
from headgate.errors import ConfigurationError, LinkError
from headgate.link.curve import ClientKeys, ServerKeys
from headgate.release import NEVER

DEFAULT_PORT = 10004
"""Default port for accounting; control uses the next port."""

_CONTROL = ".control"
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<rest>\S+)")
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Za-z:.%_-]+\]|[^\s\[\]/:;,@]+)(?::(?P<port>[0-9]{1,5}))?")


class Endpoints(NamedTuple):
    """The endpoints that ZeroMQ binds or connects to."""

    accounting: str
    control: str


def endpoints(address: str) -> Endpoints:
    """Parse ``HOST``, ``HOST:PORT``, ``tcp://HOST:PORT``, ``ipc://PATH`` or ``inproc://NAME``.

    An IPv6 host needs brackets if a port follows. Port 0 stays 0 for both: the system chooses the ports when they are
    bound. The control endpoint of a path or name has ".control" appended. Raises `ConfigurationError` with the address
    and an example.
    """
    match = _ADDRESS.fullmatch(address)
    scheme, rest = (match["scheme"] or "tcp", match["rest"]) if match else ("", "")
    if scheme in {"ipc", "inproc"}:
        return Endpoints(f"{scheme}://{rest}", f"{scheme}://{rest}{_CONTROL}")
    found = _HOST_PORT.fullmatch(_bracketed(rest)) if scheme == "tcp" else None
    port = int(found["port"] or DEFAULT_PORT) if found else -1
    if found is None or not 0 <= port < 65535 or not is_host(found["host"]):  # control needs the next port
        raise ConfigurationError(
            f"invalid master address {address!r}; expected one such as 'tcp://127.0.0.1:{DEFAULT_PORT}'"
        )
    following = port + 1 if port else 0
    return Endpoints(f"tcp://{found['host']}:{port}", f"tcp://{found['host']}:{following}")


def _bracketed(rest: str) -> str:
    """Add brackets to a bare IPv6 address: its last group is not a port."""
    try:
        ipaddress.IPv6Address(rest)
    except ValueError:
        return rest
    return f"[{rest}]"


Socket = zmq.Socket[bytes]

# Plain integers: pyzmq takes four times as long to read its own enumerations.
EVENTS: Final = int(zmq.EVENTS)
NOBLOCK: Final = int(zmq.NOBLOCK)
POLLIN: Final = int(zmq.POLLIN)
SNDMORE: Final = int(zmq.SNDMORE | zmq.NOBLOCK)

_PORT_TRIES = 256
_REBIND_TRIES = 1_000
_OTHER_PORTS = range(10_000, 32_767)
"""Ports that systems do not choose for outgoing connections. After thousands of connections have ended, every second
port that the system chooses from is in use for a minute."""

_OPTIONS: tuple[tuple[int, int], ...] = (
    (zmq.LINGER, 0),  # closing never waits for a peer
    (zmq.RECONNECT_IVL, 100),
    (zmq.RECONNECT_IVL_MAX, 2_000),
    # TCP repeats a lost SYN after 1, 3, 7, 15 … s: without a limit, a partition would have an effect for longer.
    (zmq.CONNECT_TIMEOUT, 2_000),
    (zmq.HANDSHAKE_IVL, 10_000),  # a connection without a handshake is closed
    (zmq.BACKLOG, 1_024),
    # TCP detects a peer whose host has vanished within half a minute. The side that connects sends heartbeats, too.
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, 15),
    (zmq.TCP_KEEPALIVE_INTVL, 5),
    (zmq.TCP_KEEPALIVE_CNT, 3),
    (zmq.TCP_MAXRT, 30_000),
)


def open_socket(context: "zmq.Context[Socket]", kind: int, *, queue: int, largest: int) -> Socket:
    """Open a socket with queues of at most `queue` messages per peer, and frames of at most `largest` bytes."""
    socket = context.socket(kind)
    for option, value in _OPTIONS:
        socket.setsockopt(option, value)
    socket.setsockopt(zmq.SNDHWM, queue)
    socket.setsockopt(zmq.RCVHWM, queue)
    socket.setsockopt(zmq.MAXMSGSIZE, largest)
    return socket


def repeat(receive: Callable[[], object], limit: int) -> bool:
    """Receive messages by a function until none waits, `limit` at most; return whether more may wait."""
    try:
        for _ in range(limit):
            receive()
    except zmq.Again:
        return False
    return True


def connect_pair(accounting: Socket, control: Socket, address: str, keys: ClientKeys | None = None) -> Endpoints:
    """Connect both sockets to the master at `address`, which need not be running yet; with `keys`, by CURVE."""
    pair = endpoints(address)
    for socket, endpoint in zip((accounting, control), pair, strict=True):
        if keys is not None:
            socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.own.public)
            socket.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret)
            socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server)
        # With IPV6 set, a DNS name may resolve to either family; IPv4 addresses work too.
        socket.setsockopt(zmq.IPV6, int(endpoint.startswith("tcp://")))
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            raise LinkError(f"{endpoint} cannot be connected to ({_reason(error)}); name a master's address") from None
    return pair


def bind_pair(
    accounting: Socket, control: Socket, address: str, keys: ServerKeys | None = None, *, insecure: bool = False
) -> Endpoints:
    """Bind both sockets; return their endpoints, with the port that the system chose for port 0.

    With `keys`, peers connect by CURVE only. Without, an address beyond loopback needs `insecure`. Raises `LinkError`
    with the address that cannot be bound.
    """
    pair = endpoints(address)
    if keys is not None:
        for socket in (accounting, control):
            _require_curve(socket, keys)
    scheme, _, rest = pair.accounting.partition("://")
    if scheme == "ipc":
        _refuse_taken_paths(pair)
    if scheme != "tcp":
        return Endpoints(_bind(accounting, pair.accounting), _bind(control, pair.control))
    host, _, port = rest.rpartition(":")
    numeric = _numeric(host, address)
    if keys is None and not insecure and not is_loopback(numeric):
        raise unprotected_error(address)
    for socket in (accounting, control):
        socket.setsockopt(zmq.IPV6, int(":" in numeric))
    if port != "0":
        first = _bind(accounting, f"tcp://{numeric}:{port}")
        return Endpoints(first, _bind(control, f"tcp://{numeric}:{int(port) + 1}", f", the control port of {first},"))
    return _bind_anywhere(accounting, control, numeric)


def bind_again(sockets: Iterable[Socket], pair: Endpoints) -> None:
    """End all connections of bound sockets: peers connect again. Raises `LinkError` if a socket cannot be bound."""
    sockets = list(sockets)
    for socket, endpoint in zip(sockets, pair, strict=True):
        with suppress(zmq.ZMQError):  # an earlier call could not bind it
            socket.unbind(endpoint)
    for socket, endpoint in zip(sockets, pair, strict=True):
        for wait in [0.001] * _REBIND_TRIES:  # libzmq's thread closes the old listener
            with suppress(LinkError):
                _bind(socket, endpoint)
                break
            time.sleep(wait)
        else:
            _bind(socket, endpoint)


def is_exposed(address: str) -> bool:
    """Return whether other machines can reach an address ``tcp://HOST:PORT``.

    Raises `LinkError` for the name of another machine.
    """
    host, _, _ = endpoints(address).accounting.removeprefix("tcp://").rpartition(":")
    return not is_loopback(_numeric(host, address))


def unprotected_error(address: str) -> LinkError:
    """Return the error for an address that other machines can reach, and that is to be bound without keys."""
    return LinkError(
        f"{address}: other machines can reach this address, and without keys every peer there can hold any client; "
        "set curve_key and curve_allow (--curve-key, --curve-allow; create keys with: headgate keys new -o DIR), "
        "or set insecure (--insecure) on a network that only gatekeepers reach"
    )


def _require_curve(socket: Socket, keys: ServerKeys) -> None:
    """Refuse peers without CURVE, and all peers unless an authenticator admits them."""
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret)
    socket.setsockopt(zmq.ZAP_DOMAIN, b"headgate")
    # Otherwise libzmq would admit every key while no authenticator runs.
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def _bind_anywhere(accounting: Socket, control: Socket, host: str) -> Endpoints:
    """Bind to a port that the system chooses, or else to one by chance, and to the next one."""
    for chosen in [0] * _PORT_TRIES + random.choices(_OTHER_PORTS, k=_PORT_TRIES):
        try:
            first = _bind(accounting, f"tcp://{host}:{chosen}")
        except LinkError:
            if chosen:  # it is in use
                continue
            raise
        port = int(first.rpartition(":")[2])
        with suppress(LinkError):
            return Endpoints(first, _bind(control, f"tcp://{host}:{port + 1}"))
        accounting.unbind(first)
    raise LinkError(f"tcp://{host}:0: no two consecutive ports are free; name a port")


def _bind(socket: Socket, endpoint: str, role: str = "") -> str:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise LinkError(
            f"{endpoint}{role} cannot be bound ({_reason(error)}); free it or name another address"
        ) from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _numeric(host: str, address: str) -> str:
    """Return the address of a host: libzmq does not bind to names."""
    if host == "*" or host.startswith("["):
        return host
    try:
        family, _, _, _, where = plain.getaddrinfo(host, None, type=plain.SOCK_STREAM)[0]
    except OSError as error:
        raise LinkError(f"{address}: {host} is not an address of this machine ({error.strerror})") from None
    return f"[{where[0]}]" if family == plain.AF_INET6 else str(where[0])


def _refuse_taken_paths(pair: Endpoints) -> None:
    """Raise `LinkError` for a path on which another process listens: libzmq would silently replace its socket."""
    for endpoint in pair:
        path = endpoint.removeprefix("ipc://")
        with plain.socket(plain.AF_UNIX, plain.SOCK_STREAM) as probe:
            probe.settimeout(0)
            try:
                probe.connect("\0" + path[1:] if path.startswith("@") else path)
            except BlockingIOError:
                pass  # a process listens, and its backlog is full
            except OSError:
                continue
        raise LinkError(f"{endpoint} cannot be bound (another master answers there); stop it or name another path")


def _reason(error: zmq.ZMQError) -> str:
    """Return the system's message without pyzmq's additions, which repeat the address."""
    return os.strerror(error.errno or 0)


def file_descriptor(socket: Socket) -> int:
    """Return the file descriptor that becomes readable when the state of the socket may have changed."""
    return int(socket.getsockopt(zmq.FD))


def has_message(socket: Socket) -> bool:
    """Return whether a message is waiting: when none is, this costs less than a `recv` that raises `zmq.Again`."""
    return bool(int(socket.get(EVENTS)) & POLLIN)


def close_sockets(sockets: Iterable[Socket]) -> None:
    """Close sockets."""
    for socket in sockets:
        socket.close()


class LoopDriver:
    """Calls `turn` at once, when a message arrives at one of `sockets`, and when it is due, until `close`.

    `turn` handles a limited number of messages, and returns the seconds until its next call: 0 if more are waiting,
    infinity if only a message makes it due. Call `wake` or `wake_soon` after other uses of the sockets: sending may
    consume the event of a message.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turn: Callable[[], float], sockets: Iterable[Socket]) -> None:
        self._loop = loop
        self._turn = turn
        self._descriptors = [file_descriptor(socket) for socket in sockets]
        self._next: asyncio.Handle | None = None
        self._is_soon = False
        for descriptor in self._descriptors:
            loop.add_reader(descriptor, self.wake)
        self.wake()

    def wake(self) -> None:
        """Run one turn, and schedule the next."""
        if self._next is not None:
            self._next.cancel()
            self._next, self._is_soon = None, False
        seconds = self._turn()
        if seconds == 0.0:
            self.wake_soon()
        elif seconds < NEVER:
            self._next = self._loop.call_later(seconds, self.wake)

    def wake_soon(self) -> None:
        """Run a turn in the next iteration of the event loop."""
        if self._is_soon:
            return
        if self._next is not None:
            self._next.cancel()
        self._next, self._is_soon = self._loop.call_soon(self.wake), True

    def close(self) -> None:
        """Leave the loop; call it before the sockets are closed."""
        if self._next is not None:
            self._next.cancel()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self._descriptors.clear()
