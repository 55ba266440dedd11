"""Origins, as text: their serialisation (html.spec.whatwg.org), and which are trustworthy (Secure Contexts, 3.1)."""

import re

import can_ada

_origin = re.compile(r"([a-z]++)://(\[[0-9a-f:]++\]|[^:]++)(?::[0-9]++)?").fullmatch
_loopback = re.compile(r"127\.[0-9]++\.[0-9]++\.[0-9]++|\[::1\]").fullmatch


def serialised_origin(url: str) -> str | None:
    """Return the origin of a URL, `https://example.com:8443`; None for an invalid URL and for an opaque origin.

    The host is normalized by the WHATWG's parser: `127.1` becomes `127.0.0.1`.
    """
    try:
        origin: str = can_ada.parse(url).origin
    except (ValueError, TypeError):  # a failure of the parser; a lone surrogate
        return None
    return None if origin == "null" else origin


def is_potentially_trustworthy(origin: str) -> bool:
    """Return whether responses of an origin from `serialised_origin` are protected against changes on the way.

    Those under TLS are, and those of this machine: loopback addresses, `localhost` and its subdomains.
    """
    match = _origin(origin)
    if match is None:
        return False
    scheme, host = match.groups()
    return scheme in {"https", "wss"} or is_localhost(host)


def is_localhost(host: str) -> bool:
    """Return whether a normalized host is this machine: loopback, `localhost` or a subdomain of it."""
    if _loopback(host):
        return True
    name = host.removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def host_of(origin: str) -> str:
    """Return the host of an origin from `serialised_origin`: no scheme, no port, IPv6 addresses in brackets."""
    start = origin.index("//") + 2
    end = origin.find(":", origin.find("]", start) + 1 or start)
    return origin[start:] if end < 0 else origin[start:end]
