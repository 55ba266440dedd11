"""What a CONNECT names: a host and a port, the authority-form of RFC 9112 (section 3.2.3), and nothing beside.

The WHATWG's parser alone says what a host is, so that every rule, the advice, the resolver and the log read one and
the same: `127.1`, `0x7f.1` and `2130706433` are `127.0.0.1`. This file knows no rule: to it any address is one.
"""

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

import can_ada

from headgate.proxy.net.endpoint import Address

__all__ = ["HTTPS", "Authority", "parse_authority", "parse_host"]

HTTPS: Final = 443
"""The port that an `https` origin does not name."""

# What the parser would cut off, or take for something else than host and port, never gets to it: whitespace and control
# characters, which it strips; user information, a path, a query, a fragment; a second colon. Zone identifiers have no
# place in a URL, and their "%" none among these.
_authority = re.compile(r"(\[[0-9A-Fa-f:.]++\]|[^\x00-\x20\x7f\s/\\?#@:\[\]]++):([0-9]{1,5})").fullmatch

# RFC 1035, 2.3.4, as text: labels of 1 to 63 octets, at most 253 in all without the dot that may end a name. A resolver
# looks up nothing else, and an empty label would keep a name from its suffix among the rules.
_name = re.compile(r"(?=.{1,253}\.?\Z)[^.]{1,63}+(?:\.[^.]{1,63}+)*+\.?").fullmatch
_LONGEST: Final = 1024


class Authority(NamedTuple):
    """One host and port, as `parse_authority` gives them."""

    host: str
    """As the parser writes it: ASCII, lower case, an IPv6 address in brackets; a dot at its end stays."""

    port: int
    """1 to 65535."""

    address: Address | None
    """What the host is where it is no name."""

    name: str
    """The host without brackets and without a dot at its end: what rules name, and a certificate is for."""

    origin: str
    """The origin, serialised: what its advice is asked at and remembered under, and what draws are made for.

    Without a dot at the end, though to the WHATWG that is another origin: it is the same server, and who asks for it by
    its other name gets no second draw.
    """

    @classmethod
    def of(cls, host: str, port: int) -> "Authority":
        """Make it of a host as the parser writes it, and a port."""
        undotted = host.removesuffix(".")
        origin = f"https://{undotted}" if port == HTTPS else f"https://{undotted}:{port}"
        return cls(host, port, _literal(host), undotted.strip("[]"), origin)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_authority(text: str) -> Authority | None:
    """Read `host:port`; None where that is malformed, which is answered 400.

    A host without a port is (9110 9.3.6: "the default port" is not assumed), and so is what has more than the two.
    """
    return _parsed(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=1024)  # clients ask for few origins, and for those again and again
def _parsed(text: str) -> Authority | None:
    match = _authority(text)
    if match is None:
        return None
    host, port = parse_host(match[1]), int(match[2])
    if host is None or not 1 <= port <= 65_535:
        return None
    return Authority.of(host, port)


def parse_host(text: str) -> str | None:
    """Read a host alone, an IPv6 address in brackets; gives it as the parser writes it, or None."""
    if _authority(f"{text}:1") is None:
        return None
    try:
        host: str = can_ada.parse(f"https://{text}/").hostname
    except (ValueError, TypeError):  # a failure of the parser; a lone surrogate
        return None
    return host if host.startswith("[") or _name(host) else None


def _literal(host: str) -> Address | None:
    """Give the address that a host from the parser is: in brackets, or else in dotted decimal, or none."""
    if host.startswith("["):
        return IPv6Address(host[1:-1])
    if not host[-1].isdigit():
        return None
    try:
        return IPv4Address(host)
    except AddressValueError:
        return None  # a name such as "a1"
