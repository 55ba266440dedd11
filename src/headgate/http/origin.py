"""Origins, as text: their serialisation (html.spec.whatwg.org), and which are trustworthy (Secure Contexts, 3.1)."""

import re

import can_ada

__all__ = ["host_of", "is_localhost", "is_potentially_trustworthy", "serialised_origin"]

_origin = re.compile(r"([a-z]++)://(\[[0-9a-f:]++\]|[^:]++)(?::[0-9]++)?").fullmatch
_loopback = re.compile(r"127\.[0-9]++\.[0-9]++\.[0-9]++|\[::1\]").fullmatch


def serialised_origin(url: str) -> str | None:
    """Give the origin of a URL, `https://example.com:8443`; None for what is no URL and for an opaque origin.

    Everything else of the URL is dropped. A host is what the WHATWG's parser makes of it: `127.1` is `127.0.0.1`.
    """
    try:
        origin: str = can_ada.parse(url).origin
    except (ValueError, TypeError):  # a failure of the parser; a lone surrogate
        return None
    return None if origin == "null" else origin


def is_potentially_trustworthy(origin: str) -> bool:
    """Say whether nobody on the way can have changed what an origin sends; `origin` is from `serialised_origin`.

    Which is so under TLS, and of this machine itself: loopback addresses, `localhost` and the names below it.
    """
    match = _origin(origin)
    if match is None:
        return False
    scheme, host = match.groups()
    return scheme in {"https", "wss"} or is_localhost(host)


def is_localhost(host: str) -> bool:
    """Say whether a host, as the parser writes it, is this machine: loopback, `localhost` or a name below it."""
    if _loopback(host):
        return True
    name = host.removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def host_of(origin: str) -> str:
    """Give the host of an origin from `serialised_origin`: without scheme and port, an IPv6 address in its brackets."""
    start = origin.index("//") + 2
    end = origin.find(":", origin.find("]", start) + 1 or start)
    return origin[start:] if end < 0 else origin[start:end]
