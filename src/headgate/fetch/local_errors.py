"""Telling failures of this machine from failures of the origin that is asked.

A fetch that fails for want of a descriptor, a port or a name server says nothing of the origin. It is not taken for an
unreachable origin, which requests may go to; it is made again.
"""

import errno
import re
import socket
from collections.abc import Iterator
from typing import Final

_refused = re.compile(r"(?:\A|Tunnel connection failed: )([1-9][0-9]{2})\b").search

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


def is_refused_by_proxy(error: BaseException) -> bool:
    """Return whether an error in connecting through the client's proxy is the proxy's own; False for a status of 5xx.

    With 5xx to a CONNECT proxies say that they cannot reach the origin. httpx begins its message with the status,
    `http.client` has it in the middle, and urllib3 has that.
    """
    status = _refused(str(error))
    return status is None or not status[1].startswith("5")


def _system_errors(error: BaseException) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield the numbers of the errors behind an exception of a library, and those of their kind that are local."""
    import ssl  # which takes longer to import than all of this, and is rarely needed

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
