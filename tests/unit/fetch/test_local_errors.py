"""Failures of this machine are told from failures of the origin."""

import errno
import socket
import ssl

import pytest

from headgate.fetch.local_errors import is_local, is_refused_by_proxy

FULL = OSError(errno.EMFILE, "Too many open files")
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def wrapped(error: BaseException, *, explicitly: bool) -> BaseException:
    """Wrap an error twice, as libraries do."""
    outer = RuntimeError("middle")
    outer.__cause__, outer.__context__ = (error, None) if explicitly else (None, error)
    outermost = OSError("without a number")
    outermost.__context__ = outer
    return outermost


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EADDRNOTAVAIL, ""),
        OSError(errno.ENETUNREACH, ""),
        PermissionError(errno.EPERM, ""),
        socket.gaierror(socket.EAI_AGAIN, ""),
        wrapped(FULL, explicitly=True),
        wrapped(FULL, explicitly=False),
        ExceptionGroup("both", [FULL, OSError(errno.ENFILE, "")]),
    ],
)
def test_missing_local_resources_are_local(error):
    assert is_local(error)


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        TimeoutError(),
        TimeoutError(errno.ETIMEDOUT, ""),
        ValueError("nothing of the system's"),
        socket.gaierror(socket.EAI_NONAME, ""),
        wrapped(REFUSED, explicitly=True),
        ExceptionGroup("one address of two", [OSError(errno.ENETUNREACH, ""), REFUSED]),
        # OpenSSL's number 1 is a failure of TLS, the system's is a lack of permission.
        ssl.SSLError(errno.EPERM, "certificate verify failed"),
    ],
)
def test_errors_that_an_origin_can_cause_are_not_local(error):
    assert not is_local(error)


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("407 Proxy Authentication Required", True),
        ("Tunnel connection failed: 403 Forbidden", True),
        ("Tunnel connection failed: 502 Bad Gateway", False),
        ("the proxy closed the connection", True),
    ],
)
def test_a_refusal_by_a_proxy_is_told_from_an_unreachable_origin(message, refused):
    assert is_refused_by_proxy(OSError(message)) is refused


def test_circular_causes_end():
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first
    assert not is_local(first)
