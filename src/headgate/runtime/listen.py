"""Listening sockets: opened before workers share them, or inherited; and errors for addresses not available."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from msgspec import Struct

from headgate.config import Address, Configuration
from headgate.config.section import UNIX, parse_mode
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.unix_socket import UnixSocket

_MISSING_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class Endpoint(Struct, frozen=True):
    """An address at which a listener of the gate listens, with sockets that workers share."""

    listener: int
    """The index of the listener in the configuration."""
    address: Address
    """Host and port to listen at. Of a unix socket, its path and port 0."""
    descriptors: tuple[int, ...] = ()
    """The sockets; without any, each process opens one at the address."""

    def url(self, *, tls: bool) -> str:
        """Return what clients connect to."""
        host, port = self.address
        return f"{UNIX}{host}" if not port else f"http{'s' if tls else ''}://{self.address}"

    def of_worker(self, number: int, count: int) -> list[int]:
        """Return the sockets of one of `count` workers: its own, or if there are fewer than workers, a shared one."""
        own = [one for index, one in enumerate(self.descriptors) if index % count == number]
        return own or list(self.descriptors[number % max(1, len(self.descriptors)) :][:1])


class ListenerSockets:
    """The sockets of all listeners of `tree`: those of `inherited` that are at their addresses, and new ones.

    Each worker has a socket of its own at an address, and all hold those of the others; they are open before the
    workers start, and survive them. `files` closes all, and removes the files of unix sockets. Raises
    `ConfigurationError`, which names the address, for one not available.
    """

    def __init__(self, tree: Configuration, inherited: list[socket.socket], files: ExitStack) -> None:
        self.sockets: list[socket.socket] = []
        """All sockets."""
        self.endpoints: list[Endpoint] = []
        """Where they listen."""
        self.unix: list[UnixSocket] = []
        """Those whose files were made here."""
        files.callback(self.close)
        named_first = sorted(enumerate(tree.listeners), key=lambda one: one[1].address.endswith(":0"))
        taken = {index: take_at(section.address, inherited) for index, section in named_first}
        for index, section in enumerate(tree.listeners):
            flag, address = f"listener[{index}].address" if tree.listener else "--listen", section.address
            if found := taken[index]:
                self._add(index, found)
            elif address.startswith(UNIX):
                opened = UnixSocket(address.removeprefix(UNIX), mode=parse_mode(section.mode), flag=flag)
                files.callback(opened.close)
                self.unix.append(opened)
                self._add(index, [opened.socket])
            else:
                with reserve_addresses(flag, Address.parse(address)) as reserved:
                    self._add(index, [_open(one) for one in reserved for _ in range(tree.gate.workers)])

    def _add(self, index: int, sockets: list[socket.socket]) -> None:
        self.sockets += sockets
        names = [one.getsockname() for one in sockets]
        for name in dict.fromkeys(names):
            address = Address(name, 0) if isinstance(name, str) else Address(*name[:2])
            numbers = [one.fileno() for one, other in zip(sockets, names, strict=True) if other == name]
            self.endpoints.append(Endpoint(index, address, tuple(numbers)))

    def close(self) -> None:
        """Close this process's sockets: the system refuses clients once workers have closed theirs too."""
        for sock in self.sockets:
            sock.close()


def take_at(address: str, inherited: list[socket.socket]) -> list[socket.socket]:
    """Remove from `inherited` the sockets at `address`, as it is written in the configuration, and return them.

    With port 0, these are those of the first port found.
    """
    if not inherited:
        return []
    names, port = {address.removeprefix(UNIX)}, 0
    if not address.startswith(UNIX):
        host, port = Address.parse(address)
        with suppress(OSError):  # the error of a host that is unknown comes later
            infos = socket.getaddrinfo(None if host == "*" else host, port, flags=socket.AI_PASSIVE)
            names = {str(info[4][0]) for info in infos}
    found = []
    for sock in list(inherited):
        name = sock.getsockname()
        where, number = (name, 0) if isinstance(name, str) else name[:2]
        if where in names and port in {0, number}:
            port = number
            inherited.remove(sock)
            found.append(sock)
    return found


def _open(address: Address) -> socket.socket:
    """Return a socket that others of this user may share the address with; it does not listen yet."""
    sock = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _bind(sock, address)
    return sock


@contextmanager
def reserve_addresses(flag: str, address: Address) -> Iterator[list[Address]]:
    """Reserve every address of a host while inside, those of both families for "*".

    Gives the numeric addresses with the true port; raises `ConfigurationError`, which names `flag`. SO_REUSEPORT alone
    would let this program in beside another one's sockets: so a socket without it is bound first. The socket that stays
    is bound and never listens; it keeps a port that the system chose.
    """
    with ExitStack() as kept:
        try:
            bound = _reserve(address, kept)
        except OSError as error:
            raise listen_error(flag, address, error) from None
        yield bound


def _reserve(address: Address, kept: ExitStack) -> list[Address]:
    found = socket.getaddrinfo(
        None if address.host == "*" else address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[Address] = []
    missing: OSError | None = None
    for family, _, _, _, where in dict.fromkeys(found):
        # All families share the port that the system chose for the first.
        chosen = bound[0].port if bound else address.port
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                port = _bind(probe, (where[0], chosen, *where[2:]))
            sharing = kept.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            _bind(sharing, (where[0], port, *where[2:]))
        except OSError as error:
            if error.errno not in _MISSING_FAMILY:
                raise
            missing = error  # such as ::1 of localhost on a machine without IPv6
        else:
            bound.append(Address(str(where[0]), port))
    if missing is not None and not bound:
        raise missing
    return bound


def _bind(sock: socket.socket, where: tuple[Any, ...]) -> int:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(where)
    return int(sock.getsockname()[1])


def listen_error(flag: str, address: Address, error: OSError) -> ConfigurationError:
    """Return the error for an address that is not available, with what to do about it."""
    if error.errno == errno.EADDRINUSE:
        return ConfigurationError(
            f"{address} is taken by another program; stop that one, or choose another address with {flag}"
        )
    number = error.errno or 0
    reason = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
    return ConfigurationError(f"cannot listen at {address} ({reason}); choose another address with {flag}")
