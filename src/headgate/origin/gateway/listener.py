"""What differs between the listeners of a gateway: TLS, the header of the PROXY protocol, and the redirect to HTTPS."""

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import ProtocolError
from headgate.http.h1 import RequestHead
from headgate.http.proxy_protocol import MAX_HEADER_SIZE, parse_proxy_header
from headgate.origin.gateway.policy import ClientView, decide
from headgate.origin.gateway.record import GatewayCounters, RequestRecord
from headgate.origin.gateway.responses import gateway_problem
from headgate.origin.gateway.tls import TlsKeys
from headgate.origin.response import Response

Decide = Callable[[RequestRecord, RequestHead, ClientView, GatewayCounters], Response | None]
"""Decides on a request, as `decide` does."""

HTTPS_PORT = 443
"""The port of https in a URL without one."""
_HOST = re.compile(rb"(\[[^\]]*\]|[^:]+)(?::([0-9]{0,5}))?")


@dataclass(frozen=True)
class ListenerSettings:
    """How the connections of one listener begin, and what decides on their requests."""

    tls: TlsKeys | None = None
    """Each connection begins with a handshake that uses these keys; None without TLS."""
    proxy_protocol: bool = False
    """Each connection comes from a trusted proxy, and begins with a header of the PROXY protocol, before TLS."""
    decide: Decide = decide


PLAIN = ListenerSettings()
"""A listener for plain HTTP."""


def redirect_to_https(own_port: int, https_port: int) -> Decide:
    """Return what answers every request with a redirect to https with the same host, and asks no rule.

    Its port is 443; it is `https_port` for clients that name `own_port`, so that no other program translates ports.
    """

    def redirect(
        record: RequestRecord, request: RequestHead, _client: ClientView, _counters: GatewayCounters
    ) -> Response | None:
        record.reason = "redirect"
        found = _HOST.fullmatch(request.host)
        if found is None:
            return gateway_problem(400, "the request has no Host, which a redirect to HTTPS needs")
        host = found[1]
        if int(found[2] or 80) == own_port and https_port != HTTPS_PORT:
            host += b":%d" % https_port
        target = request.target if request.target[:1] == b"/" else b"/"
        return Response(308, [(b"location", b"https://" + host + target), (b"content-length", b"0")], b"")

    return redirect


async def read_proxy_header(sock: socket.socket) -> str | None:
    """Read the header of the PROXY protocol from a socket, and no byte after it; return the client's address.

    Returns None if the proxy sends for itself. Raises `ProtocolError` for a malformed header, and `OSError` for a
    connection that ends before its first byte.
    """
    loop = asyncio.get_running_loop()
    data = b""
    while True:
        readable = asyncio.Event()
        loop.add_reader(sock, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(sock)
        try:
            ahead = sock.recv(MAX_HEADER_SIZE, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        if not ahead:
            raise ProtocolError(400, "the header is incomplete") if data else ConnectionResetError
        header = parse_proxy_header(data + ahead)
        sock.recv(len(ahead) if header is None else header.size - len(data))
        if header is not None:
            return header.source
        data += ahead
