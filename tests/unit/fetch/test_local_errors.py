"""Failures of this machine are told from failures of the origin."""

import errno
import socket
import ssl

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


def test_missing_local_resources_are_local():
    for error in (
        FULL,
        OSError(errno.EADDRNOTAVAIL, ""),
        OSError(errno.ENETUNREACH, ""),
        PermissionError(errno.EPERM, ""),
        socket.gaierror(socket.EAI_AGAIN, ""),
        wrapped(FULL, explicitly=True),
        wrapped(FULL, explicitly=False),
        ExceptionGroup("both", [FULL, OSError(errno.ENFILE, "")]),
    ):
        assert is_local(error), error


def test_errors_that_an_origin_can_cause_are_not_local():
    for error in (
        REFUSED,
        TimeoutError(),
        TimeoutError(errno.ETIMEDOUT, ""),
        ValueError("nothing of the system's"),
        socket.gaierror(socket.EAI_NONAME, ""),
        wrapped(REFUSED, explicitly=True),
        ExceptionGroup("one address of two", [OSError(errno.ENETUNREACH, ""), REFUSED]),
        # OpenSSL's number 1 is a failure of TLS, the system's is a lack of permission.
        ssl.SSLError(errno.EPERM, "certificate verify failed"),
    ):
        assert not is_local(error), error


def test_a_refusal_by_a_proxy_is_told_from_an_unreachable_origin():
    for message, refused in (
        ("407 Proxy Authentication Required", True),
        ("Tunnel connection failed: 403 Forbidden", True),
        ("Tunnel connection failed: 502 Bad Gateway", False),
        ("the proxy closed the connection", True),
    ):
        assert is_refused_by_proxy(OSError(message)) is refused, message


def test_circular_causes_end():
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first
    assert not is_local(first)
