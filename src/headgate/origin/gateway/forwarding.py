"""What the origin is sent: the agent's fields, less those of this hop, plus who asked (9110 7.6, RFC 7239).

This file knows nothing of sockets. What a stranger says about earlier hops is replaced by what is known here; what a
trusted proxy says is continued.
"""

import msgspec

from headgate.origin.gateway.answer import HOP_BY_HOP
from headgate.origin.gateway.grammar import Request

__all__ = ["Peer", "forwarded_head"]

_CONTINUED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"via"})
_ALWAYS_DROPPED = HOP_BY_HOP | {
    b"host",  # written first
    b"content-length",  # written anew
    b"expect",  # written anew, where a body follows
    b"trailer",  # trailers of requests are dropped
    b"x-forwarded-proto",  # always ours
    b"proxy",  # "httpoxy": CGI and its kin would make it HTTP_PROXY
}
_NOT_REMOVED = frozenset({b"content-length", b"transfer-encoding", b"host"})


class Peer(msgspec.Struct, frozen=True):
    """The other end of an agent's connection."""

    address: str
    """Its address without the port; empty when it has none."""
    trusted: bool
    """Whether it is one of the operator's own proxies."""
    tls: bool
    """Whether the connection is encrypted."""


def forwarded_head(request: Request, peer: Peer, authority: bytes) -> bytes:
    """Write the head that goes to the origin; `authority` stands in for a missing Host."""
    earlier: dict[bytes, list[bytes]] = {}
    lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (request.method, request.target, request.host or authority)]
    dropped = _ALWAYS_DROPPED
    if request.connection:
        dropped |= request.connection - _NOT_REMOVED
    for raw, (name, value) in zip(request.names, request.fields, strict=True):
        # CGI, WSGI and their kin read X_Forwarded_For as X-Forwarded-For.
        alias = name.replace(b"_", b"-")
        if name in dropped or alias in _ALWAYS_DROPPED:
            continue
        if alias in _CONTINUED:
            if alias == name and peer.trusted:
                earlier.setdefault(name, []).append(value)
        elif peer.trusted or not (alias.startswith(b"x-forwarded-") or alias == b"x-real-ip"):
            lines.append(b"%b: %b\r\n" % (raw, value))
    lines += _framing(request)
    lines += _provenance(request, peer, earlier)
    lines.append(b"\r\n")
    return b"".join(lines)


def _framing(request: Request) -> list[bytes]:
    lines = []
    if request.chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    elif request.length >= 0:
        lines.append(b"Content-Length: %d\r\n" % request.length)
    if request.expects:
        lines.append(b"Expect: 100-continue\r\n")
    if request.upgrade:
        lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
    elif request.trailers:
        # 9110 6.5.1: what the agent says of itself holds for this hop too, since trailers are passed on.
        lines.append(b"Connection: TE\r\nTE: trailers\r\n")
    return lines


def _provenance(request: Request, peer: Peer, earlier: dict[bytes, list[bytes]]) -> list[bytes]:
    scheme = b"https" if peer.tls else b"http"
    address = peer.address.encode() or b"unknown"
    # RFC 7239, 4 and 6: an IPv6 address is in brackets, and with them in quotes; a host has a colon, so it is quoted.
    node = b'"[%b]"' % address if b":" in address else address
    element = b"for=%b;proto=%b" % (node, scheme)
    if request.host:
        element = b'for=%b;host="%b";proto=%b' % (node, request.host, scheme)
    added = {
        b"Forwarded": element,
        b"X-Forwarded-For": address,
        b"X-Forwarded-Host": request.host,
        b"Via": b"1.%d headgate" % request.minor,
    }
    lines = [b"X-Forwarded-Proto: %b\r\n" % scheme]
    for name, value in added.items():
        chain = [link for link in (*earlier.get(name.lower(), []), value) if link]
        if chain:
            lines.append(b"%b: %b\r\n" % (name, b", ".join(chain)))
    return lines
