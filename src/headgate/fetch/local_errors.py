"""Distinguishes local failures of a fetch from failures of the origin.

A fetch that fails because this machine has no descriptor, port or name server says nothing about the origin. It does
not make the origin unreachable, to which requests may be sent; it is repeated.
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
    """Return whether every system error behind `error` is local; False if there is none."""
    found = [number in known for number, known in _system_errors(error)]
    return bool(found) and all(found)


def concerns_origin(error: BaseException) -> bool:
    """Return whether a connection's error may be the origin's: neither local nor a certificate that is not trusted."""
    import ssl

    return not is_local(error) and not any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def is_refused_by_proxy(error: BaseException) -> bool:
    """Return whether the client's proxy caused an error; False for 5xx, with which it reports an unreachable origin.

    The status is at the start of httpx's message, and in the middle of the messages of `http.client` and urllib3.
    """
    status = _refused(str(error))
    return status is None or not status[1].startswith("5")


def _system_errors(error: BaseException) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield the number of each system error behind an exception, with the numbers of its kind that are local."""
    import ssl  # here, because its import is slow and rarely needed

    for current in _causes(error):
        if isinstance(current, socket.gaierror):
            yield current.errno or 0, _LOOKUP_ERRNOS
        # TLS errors have OpenSSL's numbers, some of which are also numbers of system errors.
        elif isinstance(current, OSError) and current.errno and not isinstance(current, ssl.SSLError):
            yield current.errno, _ERRNOS


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that are behind it."""
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
        pending += [current.__cause__, current.__context__, getattr(current, "reason", None)]
