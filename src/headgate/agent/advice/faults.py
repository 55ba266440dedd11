"""Telling failures of this machine from failures of the origin that is asked.

A fetch that fails for want of a descriptor, a port or a name server says nothing of the origin. It is not taken for an
unreachable origin, which requests may go to; it is made again.
"""

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Final

__all__ = ["is_local"]

_ERRNOS: Final = frozenset(
    {
        errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM,
        errno.ENETDOWN, errno.ENETUNREACH,
    }
)  # fmt: skip
_LOOKUP_ERRNOS: Final = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})


def is_local(error: BaseException) -> bool:
    """Return whether every system error that led to `error` is one of this machine; False where there was none."""
    found = [number in known for number, known in _system_errors(error)]
    return bool(found) and all(found)


def _system_errors(error: BaseException) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield the numbers of the errors behind an exception of a library, and those of their kind that are local."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, socket.gaierror):
            yield current.errno or 0, _LOOKUP_ERRNOS
        # The numbers of TLS errors are OpenSSL's, and some of them look like the system's.
        elif isinstance(current, OSError) and current.errno and not isinstance(current, ssl.SSLError):
            yield current.errno, _ERRNOS
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
        pending += [current.__cause__, current.__context__]
