"""Authentication of the peers of bound sockets by a list of public keys (ZeroMQ RFC 27, the ZAP protocol).

libzmq asks one handler per context about each handshake, over an inproc socket. This module does not know messages or
key files. There is one request for each connection, and libzmq closes a connection without an answer.
"""

from collections.abc import Callable

import zmq
from zmq.utils import z85

from headgate.errors import LinkError
from headgate.link.sockets import NOBLOCK, Socket

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_ADMITTED = (b"200", b"OK")
_REFUSED = (b"400", b"key not allowed")
_MECHANISM = b"CURVE"

OnRefusal = Callable[[str, str], None]
"""Receives the address and the key of a peer that is refused."""


class Authenticator:
    """Admits the peers whose public key is in `allowed`; `on_refusal` receives the address and key of the others.

    Raises `LinkError` if the context has another authenticator.
    """

    def __init__(self, context: "zmq.Context[Socket]", on_refusal: OnRefusal) -> None:
        self.allowed: frozenset[bytes] = frozenset()
        """The public keys in Z85; a change applies to connections made after it."""
        self.socket = context.socket(zmq.REP)
        """The socket of libzmq's requests."""
        self._on_refusal = on_refusal
        self.socket.setsockopt(zmq.LINGER, 0)
        try:
            self.socket.bind(_ENDPOINT)
        except zmq.ZMQError:
            self.socket.close()
            raise LinkError("a context can have one list of allowed keys; use another context for this link") from None

    def answer(self, limit: int) -> bool:
        """Answer up to `limit` requests; return whether more may be waiting."""
        try:
            for _ in range(limit):
                request = self.socket.recv_multipart(NOBLOCK)
                status = _ADMITTED if self._is_allowed(request) else _REFUSED
                # Version, request id, status, its text, user id, metadata.
                self.socket.send_multipart([_VERSION, b"".join(request[1:2]), *status, b"", b""], NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _is_allowed(self, request: list[bytes]) -> bool:
        """Return whether a request (version, id, domain, address, identity, mechanism, key) has an allowed key."""
        if len(request) != 7 or request[0] != _VERSION or request[5] != _MECHANISM:
            return False
        key = z85.encode(request[6])
        if key in self.allowed:
            return True
        self._on_refusal(request[3].decode("ascii", "replace"), key.decode())
        return False
