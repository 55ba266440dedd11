"""The heads that are forwarded to the origin, and back to the client (9110 7.6, RFC 7239).

Hop-by-hop fields are removed. Forwarding fields of an untrusted peer are replaced. Of those of a trusted proxy,
`Forwarded` and `X-Forwarded-For` are written anew: both from the one chain of addresses that identifies the client, and
the proxy itself. `Via` gets one more element, and `X-Forwarded-Proto` and `X-Forwarded-Host`, of which origins read one
value, are passed on.
"""

from collections.abc import Mapping

from headgate.http.h1 import RequestHead, ResponseHead, is_host_and_port
from headgate.origin.identify import ClientAddress

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade",
})  # fmt: skip
"""Fields that are not forwarded, whether Connection names them or not (9110 7.6.1)."""

CONTINUED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"via"})
"""Fields of requests to which each proxy adds an element."""

_SCHEMES = frozenset({b"http", b"https", b"ws", b"wss"})
_DROPPED_FROM_REQUESTS = HOP_BY_HOP | {
    b"host",  # written first
    b"content-length",  # written anew
    b"expect",  # written anew, where a body follows
    b"trailer",  # trailers of requests are dropped
    b"proxy",  # "httpoxy": CGI makes it the variable HTTP_PROXY
    b"x-request-id",  # written anew
}
_DROPPED_FROM_RESPONSES = HOP_BY_HOP | {b"content-length", b"x-request-id"}
_KEPT_IN_RESPONSES = frozenset({b"content-length", b"transfer-encoding", b"host", b"date"})
"""Fields that are kept even if Connection names them."""
_DROPPED_FROM_TRAILERS = HOP_BY_HOP | {
    b"content-length", b"content-encoding", b"content-type", b"content-range", b"host", b"trailer", b"set-cookie",
    b"cache-control", b"expires", b"location", b"www-authenticate", b"authorization", b"vary", b"date", b"age",
    b"retry-after",
}  # fmt: skip


class ClientInfo:
    """The client of a connection, and the forwarding fields about it."""

    __slots__ = ("address", "end", "end_host", "proxies", "tls", "trusted")

    def __init__(self, address: str, *, proxies: ClientAddress, tls: bool) -> None:
        self.address = address
        """Its address without the port; empty when it has none."""
        self.proxies = proxies
        """Reads the forwarding fields of the operator's own proxies."""
        self.trusted = proxies.trusts(address)
        """Whether it is one of the operator's own proxies."""
        self.tls = tls
        """Whether the connection is encrypted."""
        self.end_host: bytes | None = None
        """The host of its last usual request."""
        self.end = b""
        """The end of usual request heads to that host: the forwarding fields and the empty line."""

    def forwarding_lines(
        self, host: bytes, minor: int, earlier: Mapping[bytes, list[bytes]], chain: list[str]
    ) -> bytes:
        """Return the forwarding fields.

        `chain` has the addresses of the client and of earlier hops; `earlier` has the other fields of these hops by
        name, in lower case.
        """
        scheme = b"https" if self.tls else b"http"
        proto = _last_member(earlier, b"x-forwarded-proto").lower()
        proto = proto if proto in _SCHEMES else scheme
        named_host = _last_member(earlier, b"x-forwarded-host")
        named_host = named_host if is_host_and_port(named_host) else host
        hops = [hop.encode() or b"unknown" for hop in (*chain, self.address)]
        # RFC 7239, 4 and 6: an IPv6 address is in brackets, and so in quotes.
        elements = [b'for="[%b]"' % hop if b":" in hop else b"for=%b" % hop for hop in hops]
        elements[-1] += _received(host, scheme)
        if chain:
            elements[0] += _received(named_host, proto)
        via = [*filter(None, earlier.get(b"via", ())), b"1.%d headgate" % minor]
        lines = [b"X-Forwarded-Proto: %b\r\n" % proto]
        if named_host:
            lines.append(b"X-Forwarded-Host: %b\r\n" % named_host)
        for name, values in ((b"Forwarded", elements), (b"X-Forwarded-For", hops), (b"Via", via)):
            lines.append(b"%b: %b\r\n" % (name, b", ".join(values)))
        return b"".join(lines)


def _received(host: bytes, scheme: bytes) -> bytes:
    """Write how a hop was asked, for an element of Forwarded; a host may have a colon, and so is quoted."""
    return (b';host="%b"' % host if host else b"") + b";proto=" + scheme


def _last_member(earlier: Mapping[bytes, list[bytes]], name: bytes) -> bytes:
    """Return the last member of a field, empty where it is absent.

    A proxy adds its member at the end: only the last one is certainly its own.
    """
    return earlier.get(name, [b""])[-1].rpartition(b",")[2].strip(b"\t ")


def request_id_line(request_id: bytes) -> bytes:
    """Return the field line `X-Request-Id`, which requests and responses have."""
    return b"X-Request-Id: %b\r\n" % request_id


def forwarded_request_head(request: RequestHead, client: ClientInfo, authority: bytes, request_id: bytes) -> bytes:
    """Return the head that the origin is sent; `authority` takes the place of a missing Host."""
    if request.forwardable:
        if request.host != client.end_host:
            client.end_host, client.end = request.host, client.forwarding_lines(request.host, 1, {}, []) + b"\r\n"
        return request.forwardable + request_id_line(request_id) + client.end
    lines = [b"%b %b HTTP/1.1\r\nHost: %b\r\n" % (request.method, request.target, request.host or authority)]
    dropped = _DROPPED_FROM_REQUESTS
    if request.connection:
        dropped |= request.connection  # Host and framing are written anew whether they are named there or not
    earlier: dict[bytes, list[bytes]] = {}
    for line, (name, value) in zip(request.lines.split(b"\r\n"), request.fields, strict=False):
        # CGI and WSGI read X_Forwarded_For as X-Forwarded-For.
        alias = name.replace(b"_", b"-")
        if name in dropped or alias in _DROPPED_FROM_REQUESTS:
            continue
        if alias in CONTINUED:
            if client.trusted:  # an alias is kept under its own name, and not continued
                earlier.setdefault(name, []).append(value)
        elif client.trusted or not (alias.startswith(b"x-forwarded-") or alias == b"x-real-ip"):
            lines += (line, b"\r\n")
    lines += (*_framing(request), request_id_line(request_id))
    chain = client.proxies.chain(request.fields) if client.trusted else None
    lines += (client.forwarding_lines(request.host, request.minor, earlier, chain or []), b"\r\n")
    return b"".join(lines)


def _framing(request: RequestHead) -> list[bytes]:
    lines = []
    if request.chunked:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    elif request.length >= 0:
        lines.append(b"Content-Length: %d\r\n" % request.length)
    if request.expects_continue:
        lines.append(b"Expect: 100-continue\r\n")
    if request.websocket:
        lines.append(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
    elif request.accepts_trailers:
        # 9110 6.5.1: trailers are passed on, so this hop accepts what the client accepts.
        lines.append(b"Connection: TE\r\nTE: trailers\r\n")
    return lines


def forwarded_response_lines(response: ResponseHead) -> bytes:
    """Return the status line and the field lines for the client, without those about framing and connection."""
    # Always HTTP/1.1, our own version (9110 6.2).
    status_line = b"HTTP/1.1 %d %b\r\n" % (response.status, response.reason)
    dropped = _DROPPED_FROM_RESPONSES | response.connection - _KEPT_IN_RESPONSES
    lines = [line for line in response.lines.split(b"\r\n") if line.partition(b":")[0].lower() not in dropped]
    return status_line + b"\r\n".join(lines)


def forwarded_trailers(trailers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the trailers for the client: all but those that would change the meaning of the message (9110 6.5.1)."""
    return b"".join([b"%b: %b\r\n" % field for field in trailers if field[0] not in _DROPPED_FROM_TRAILERS])
