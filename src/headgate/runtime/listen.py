"""Addresses to listen at: made sure of before workers share them, and told of where they cannot be had."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from headgate.config import Address

__all__ = ["address_sentence", "reserved"]

_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


@contextmanager
def reserved(address: Address) -> Iterator[list[tuple[str, int]]]:
    """Have every address of a host while inside, of "*" those of both families; gives them in figures, with the true
    port. Raises `OSError`.

    A socket that only wants to share would be let in beside another program's: so first one is bound that does not. The
    one that stays is bound and never listens; it keeps a port that the system chose.
    """
    found = socket.getaddrinfo(
        None if address.host == "*" else address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[tuple[str, int]] = []
    missing: OSError | None = None
    with ExitStack() as kept:
        for family, _, _, _, where in dict.fromkeys(found):
            # The port that the system chose for the first one is everybody's.
            chosen = bound[0][1] if bound else address.port
            try:
                with socket.socket(family, socket.SOCK_STREAM) as probe:
                    port = _bind(probe, (where[0], chosen, *where[2:]))
                sharing = kept.enter_context(socket.socket(family, socket.SOCK_STREAM))
                sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                _bind(sharing, (where[0], port, *where[2:]))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error  # as ::1 of localhost is, where there is no IPv6
            else:
                bound.append((str(where[0]), port))
        if missing is not None and not bound:
            raise missing
        yield bound


def _bind(sock: socket.socket, where: tuple[Any, ...]) -> int:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(where)
    return int(sock.getsockname()[1])


def address_sentence(flag: str, address: Address, error: OSError) -> str:
    """Say that an address cannot be had, and what to do about it."""
    if error.errno == errno.EADDRINUSE:
        return f"{address} is taken by another program; stop that one, or choose another address with {flag}"
    number = error.errno or 0
    said = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
    return f"{address} cannot be listened at ({said}); choose another address with {flag}"
