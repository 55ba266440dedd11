"""What the origin is sent: the agent's fields, less those of this hop, plus who asked (9110 7.6, RFC 7239).

This file knows nothing of sockets. What an untrusted peer says about earlier hops is replaced by what is known here.
What a trusted proxy says is continued: `Forwarded`, `X-Forwarded-For` and `Via` get one more element, and
`X-Forwarded-Proto` and `X-Forwarded-Host`, of which origins read one value, are passed on.
"""

from collections.abc import Mapping

from headgate.origin.gateway.answer import HOP_BY_HOP
from headgate.origin.gateway.grammar import Request, is_host_and_port

__all__ = ["Peer", "forwarded_head"]

_CONTINUED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"via"})
_SCHEMES = frozenset({b"http", b"https", b"ws", b"wss"})
_ALWAYS_DROPPED = HOP_BY_HOP | {
    b"host",  # written first
    b"content-length",  # written anew
    b"expect",  # written anew, where a body follows
    b"trailer",  # trailers of requests are dropped
    b"proxy",  # "httpoxy": CGI and its kin would make it HTTP_PROXY
}


class Peer:
    """The other end of an agent's connection, and what the origin is told of it."""

    __slots__ = ("_memo", "_memo_key", "address", "tls", "trusted")

    def __init__(self, address: str, *, trusted: bool, tls: bool) -> None:
        self.address = address
        """Its address without the port; empty when it has none."""
        self.trusted = trusted
        """Whether it is one of the operator's own proxies."""
        self.tls = tls
        """Whether the connection is encrypted."""
        self._memo_key = (b"", -1)
        self._memo = b""

    def provenance(self, host: bytes, minor: int) -> bytes:
        """Give the lines that tell of this hop alone: the same for all requests to one host."""
        if self._memo_key != (host, minor):
            self._memo_key, self._memo = (host, minor), self.continued(host, minor, {})
        return self._memo

    def continued(self, host: bytes, minor: int, earlier: Mapping[bytes, list[bytes]]) -> bytes:
        """Give the lines that tell of this hop after `earlier` ones: field names in lower case, and their values."""
        scheme = b"https" if self.tls else b"http"
        address = self.address.encode() or b"unknown"
        # RFC 7239, 4 and 6: an IPv6 address is in brackets, and so in quotes; a host may have a colon, and is quoted.
        node = b'"[%b]"' % address if b":" in address else address
        own = {
            b"Forwarded": b'for=%b;host="%b";proto=%b' % (node, host, scheme)
            if host
            else b"for=%b;proto=%b" % (node, scheme),
            b"X-Forwarded-For": address,
            b"Via": b"1.%d headgate" % minor,
        }
        proto = _last(earlier, b"x-forwarded-proto").lower()
        lines = [b"X-Forwarded-Proto: %b\r\n" % (proto if proto in _SCHEMES else scheme)]
        earlier_host = _last(earlier, b"x-forwarded-host")
        if forwarded_host := earlier_host if is_host_and_port(earlier_host) else host:
            lines.append(b"X-Forwarded-Host: %b\r\n" % forwarded_host)
        for name, value in own.items():
            links = [link for link in (*earlier.get(name.lower(), ()), value) if link]
            if links:
                lines.append(b"%b: %b\r\n" % (name, b", ".join(links)))
        return b"".join(lines)


def _last(earlier: Mapping[bytes, list[bytes]], name: bytes) -> bytes:
    """Return the last member of a field, empty where there is none.

    A proxy that adds to what it was sent adds at the end: only the last member is certainly its own.
    """
    return earlier.get(name, [b""])[-1].rpartition(b",")[2].strip(b"\t ")


def forwarded_head(request: Request, peer: Peer, authority: bytes) -> bytes:
    """Write the head that goes to the origin; `authority` stands in for a missing Host."""
    method, target = request.method, request.target
    if request.simple:
        provenance = peer.provenance(request.host, request.minor)
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, target, request.block, provenance)
    earlier: dict[bytes, list[bytes]] = {}
    lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (method, target, request.host or authority)]
    dropped = _ALWAYS_DROPPED
    if request.connection:
        dropped |= request.connection  # Host and framing are written anew whether they are named there or not
    for line, (name, value) in zip(request.block.split(b"\r\n"), request.fields, strict=False):
        # CGI, WSGI and their kin read X_Forwarded_For as X-Forwarded-For.
        alias = name.replace(b"_", b"-")
        if name in dropped or alias in _ALWAYS_DROPPED:
            continue
        if alias in _CONTINUED:
            if alias == name and peer.trusted:
                earlier.setdefault(name, []).append(value)
        elif peer.trusted or not (alias.startswith(b"x-forwarded-") or alias == b"x-real-ip"):
            lines += (line, b"\r\n")
    lines += _framing(request)
    host, minor = request.host, request.minor
    lines += (peer.continued(host, minor, earlier) if earlier else peer.provenance(host, minor), b"\r\n")
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
