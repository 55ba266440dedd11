"""URLs in the normal form of the WHATWG's parser, and their origins as text (html.spec.whatwg.org, "origin").

can_ada is that parser. Nearly every URL in a bundle is in normal form already, and matches one regular expression.
What it matches, the parser leaves unchanged (a property test compares them); what it does not match, such as a host in
digits or in Punycode, is given to the parser.
"""

import re
from typing import Final

import can_ada

_LABEL: Final = r"(?!xn-)[a-z][a-z0-9-]*+"
_LEFT_ALONE: Final = r"A-Za-z0-9!$&()*+,\-:;=@_~"

_NORMAL: Final = (
    # A label of Punycode may be wrong, a last label of digits makes an IPv4 address, and a default port is left out.
    rf"((https?://{_LABEL}(?:\.{_LABEL})*+(?::(?!(?:80|443)/)[1-9][0-9]{{0,3}}+)?+)"
    # A segment that begins with a dot, or with %2E for one, may be a dot segment; within one, both are harmless.
    rf"(/[{_LEFT_ALONE}'/]*+(?:(?:(?<!/)[.%]|%(?!2))[{_LEFT_ALONE}'.%]*+[{_LEFT_ALONE}'/]*+)*+))"
    rf"(?:\?[{_LEFT_ALONE}.%/?]*+)?+"
)

normal: Final = re.compile(_NORMAL).fullmatch
"""Match a URL in normal form with neither fragment nor credentials; does not match all of them.

The groups are the URL without its query, its origin, and its path.
"""

_credentials = re.compile(r"[^:/?#]++://[^/?#]*@").match
_loopback = re.compile(r"127\.[0-9]++\.[0-9]++\.[0-9]++|\[::1\]").fullmatch


def parse_url(text: str) -> str | None:
    """Parse an absolute URL and return it in normal form; None for an invalid one.

    An empty fragment stays, as a "#" at the end: the parser's fragment is null only without a "#". A text with a lone
    surrogate is invalid.
    """
    if normal(text):
        return text
    try:
        href: str = can_ada.parse(text).href
    except (ValueError, TypeError):  # a failure of the parser; a lone surrogate
        return None
    return href


def resolve(text: str, base: str) -> str | None:
    """Parse `text`, which may be relative, against `base`, which is a URL from `parse_url`; None on failure."""
    if normal(text):
        return text
    try:
        href: str = (can_ada.parse(base) + text).href
    except (ValueError, TypeError):
        return None
    return href


def has_fragment(url: str) -> bool:
    """Return whether a URL in normal form has a fragment that is not null; the empty one of `https://a/#` is not."""
    return "#" in url


def has_credentials(url: str) -> bool:
    """Return whether a URL in normal form has a username or a password (the WHATWG's "includes credentials")."""
    return "@" in url and _credentials(url) is not None


def without_fragment(url: str) -> str:
    """Return a URL in normal form without its fragment, and in normal form again."""
    # An opaque path cannot end in spaces once nothing follows it; nowhere else does a normal form have any.
    return url.partition("#")[0].rstrip(" ")


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
    """Return whether responses of an origin from `serialised_origin` are protected against changes in transit.

    They are with TLS, and from this machine: loopback addresses, `localhost` and its subdomains (Secure Contexts, 3.1).
    """
    return origin.startswith(("https://", "wss://")) or is_localhost(host_of(origin))


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
