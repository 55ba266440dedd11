"""Listening addresses: reserved before workers share them, and error messages for those that are not available."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from msgspec import Struct

from headgate.config import Address, Configuration
from headgate.config.section import UNIX, parse_mode
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.unix_socket import UnixSocket

_MISSING_FAMILY: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class Endpoint(Struct, frozen=True):
    """A socket that a listener of the gate has; several workers share it."""

    listener: int
    """The index of the listener in the configuration."""
    address: Address
    """Host and port to listen at; reserved. Of a unix socket, its path and port 0."""
    descriptor: int = -1
    """The socket, which listens already; -1 for one that each worker opens at the address."""

    def url(self, *, tls: bool) -> str:
        """Return what clients connect to."""
        return f"{UNIX}{self.address.host}" if self.descriptor >= 0 else f"http{'s' if tls else ''}://{self.address}"


def reserve_endpoints(tree: Configuration, kept: ExitStack) -> list[Endpoint]:
    """Reserve the addresses of all listeners, and open their unix sockets, until `kept` is closed.

    Raises `ConfigurationError`, which names the address, for one that is not available.
    """
    found = []
    for index, section in enumerate(tree.listeners):
        flag = f"listener[{index}].address" if tree.listener else "--listen"
        if section.address.startswith(UNIX):
            opened = UnixSocket(section.address.removeprefix(UNIX), mode=parse_mode(section.mode), flag=flag)
            kept.callback(opened.close)
            found.append(Endpoint(index, Address(opened.path, 0), opened.socket.fileno()))
        else:
            reserved = kept.enter_context(reserve_addresses(flag, Address.parse(section.address)))
            found += [Endpoint(index, address) for address in reserved]
    return found


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
