"""TLS towards clients: the context, and what a socket inside TLS needs beyond the usual."""

import contextlib
import socket
import ssl
from collections.abc import Sequence

from headgate.errors import ConfigurationError


def server_context(
    cert: str, key: str, *, alpn: Sequence[str] = ("h2", "http/1.1"), client_ca: str | None = None
) -> ssl.SSLContext:
    """Return the context of a TLS listener from PEM files, with session tickets, offering the `alpn` protocols.

    With `client_ca`, a PEM file of certificates, clients must present a certificate signed by one of them. Raises
    `ConfigurationError` if a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(list(alpn))
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"certificate {cert!r} and key {key!r} cannot be used ({error}); give PEM files that match"
        ) from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"client CA {client_ca!r} cannot be used ({error}); give a PEM file of certificates"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def record_overhead(sock: socket.socket) -> int:
    """Return the bytes that one TLS record adds to its content; 0 without TLS.

    A header of 5, and in TLS 1.3 a type and a tag of 16 (RFC 8446, 5.2); in TLS 1.2 a nonce of 8 and that tag
    (RFC 5288), with other ciphers a few less.
    """
    if not isinstance(sock, ssl.SSLSocket):
        return 0
    return 22 if sock.version() == "TLSv1.3" else 29


def shutdown_write(sock: socket.socket) -> None:
    """Send close_notify, if inside TLS, and FIN. Later input must not be read as TLS."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(sock, ssl.SSLSocket):
            sock.unwrap()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
