"""TLS on the client's side: the context, the handshake, and the protocol that was agreed on in it.

OpenSSL reads and writes the descriptor itself. No memory is taken for TLS before the first byte has come.
"""

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.errors import ConfigurationError
from headgate.proxy.net.poller import READ, WRITE
from headgate.proxy.tunnel_end import reset

if TYPE_CHECKING:
    from headgate.proxy.server import TunnelServer

__all__ = ["Handshake", "is_certified", "record_overhead", "say_end", "server_context"]

_HANDSHAKE = b"\x16"
"""What the first record of TLS begins with (RFC 8446, section 5.1); less cannot be said with any memory for TLS."""


def server_context(
    cert: str, key: str, *, alpn: Sequence[str] = ("h2", "http/1.1"), client_ca: str | None = None
) -> ssl.SSLContext:
    """Make the context of a TLS listener from PEM files, with session tickets, offering the `alpn` protocols.

    With `client_ca`, a PEM file of certificates, clients have to show one that is signed by one of them. Raises
    `ConfigurationError` when a file cannot be used.
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


def is_certified(sock: socket.socket) -> bool:
    """Say whether the peer has shown a certificate, which then was verified."""
    return isinstance(sock, ssl.SSLSocket) and sock.getpeercert(binary_form=True) is not None


def record_overhead(sock: socket.socket) -> int:
    """Give the bytes that are received beside the content of one record: 0 without TLS.

    A header of 5, and of TLS 1.3 a type and a tag of 16 (RFC 8446, 5.2); of TLS 1.2 a nonce of 8 and that tag
    (RFC 5288), with other ciphers a few less.
    """
    if not isinstance(sock, ssl.SSLSocket):
        return 0
    return 22 if sock.version() == "TLSv1.3" else 29


def say_end(sock: socket.socket) -> None:
    """Say that nothing more is coming, inside TLS and below it; whatever comes in is not to be read as TLS any more."""
    with contextlib.suppress(OSError, ValueError):
        if isinstance(sock, ssl.SSLSocket):
            sock.unwrap()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


class Handshake:
    """A connection that is not yet inside TLS."""

    __slots__ = ("_context", "_descriptor", "_gone", "_peer", "_server", "_socket", "_surplus", "_wanted", "deadline")

    busy = 0
    """No tunnel depends on it."""
    passed = (0, 0)
    """Nor has any passed anything."""

    def __init__(
        self,
        server: "TunnelServer",
        sock: socket.socket,
        peer: tuple[str, int],
        context: ssl.SSLContext,
        *,
        surplus: bool,
    ) -> None:
        self._server = server
        self._socket = sock
        self._descriptor = sock.fileno()
        self._peer = peer
        self._context = context
        self._surplus = surplus
        self._wanted = READ
        self._gone = False
        self.deadline = server.relay.now + server.patience.handshake
        """When, on the coarse clock, `expire` is due."""

    def ready(self, _events: int) -> None:
        """Go on; see `Ready`."""
        try:
            if not isinstance(self._socket, ssl.SSLSocket):
                if self._socket.recv(1, socket.MSG_PEEK) != _HANDSHAKE:
                    self.close()
                    return
                self._socket = self._context.wrap_socket(
                    self._socket, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
                )
                self._server.shake(self)
            self._socket.do_handshake()
        except (BlockingIOError, ssl.SSLWantReadError):
            self._want(READ)
        except ssl.SSLWantWriteError:
            self._want(WRITE)
        except (OSError, ValueError):
            self.close()
        else:
            self._want(READ)
            self._gone = True
            self._server.leave(self)
            self._server.shaken(self._socket, self._peer, surplus=self._surplus)

    def expire(self) -> None:
        """Close: the client does not go on."""
        self.close()

    def drain(self) -> None:
        """Begin the end: do nothing, since the decision knows what to answer."""

    def close(self) -> None:
        """End at once."""
        if not self._gone:
            self._gone = True
            self._server.poll.drop(self._descriptor)
            reset(self._socket)
            self._server.leave(self)

    def _want(self, wanted: int) -> None:
        if wanted != self._wanted:
            self._wanted = wanted
            self._server.poll.change(self._descriptor, wanted)
