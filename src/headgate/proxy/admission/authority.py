"""The target of a CONNECT, and the rules for its host and port, checked before anything is looked up.

A target is a host and a port, the authority-form of RFC 9112 (section 3.2.3), and nothing else. The WHATWG URL parser
alone decides what a host is, so that rules, advice, resolver and log all read the same one: `127.1`, `0x7f.1` and
`2130706433` are `127.0.0.1`.

A rule for a host includes its subdomains: `example.com` matches `www.example.com`, not `notexample.com`. A rule that
denies always wins. If any rule allows hosts, all others are refused.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

import can_ada

from headgate.errors import ConfigurationError, fail_if
from headgate.fetch.destinations import Address
from headgate.proxy.refusal import Refusal

HTTPS: Final = 443
"""The port that a serialised `https` origin omits."""

# What the parser would strip, or read as something other than host and port, is rejected first: whitespace and control
# characters; user information, a path, a query, a fragment; a second colon; the "%" of a zone identifier.
_authority = re.compile(r"(\[[0-9A-Fa-f:.]++\]|[^\x00-\x20\x7f\s/\\?#@:\[\]]++):([0-9]{1,5})").fullmatch

# RFC 1035, 2.3.4, as text: labels of 1 to 63 octets, at most 253 in all without a final dot. Resolvers look up nothing
# else, and with an empty label a name would not match a rule for its suffix.
_name = re.compile(r"(?=.{1,253}\.?\Z)[^.]{1,63}+(?:\.[^.]{1,63}+)*+\.?").fullmatch
_MAX_SIZE: Final = 1024


class Authority(NamedTuple):
    """A host and a port, as `parse_authority` returns them."""

    host: str
    """As the parser serialises it: ASCII, lower case, IPv6 addresses in brackets; a final dot is kept."""

    port: int
    """1 to 65535."""

    address: Address | None
    """The address, if the host is one; None for a name."""

    name: str
    """The host without brackets and without a final dot, as in rules and certificates."""

    origin: str
    """The serialised origin: where advice is fetched, and the key of the advice cache and of draws.

    Without a final dot, although that makes another origin in the URL standard: it is the same server, and its other
    name must not give a client a second draw.
    """

    @classmethod
    def of(cls, host: str, port: int) -> "Authority":
        """Return the authority of a host, as the parser serialises it, and a port."""
        undotted = host.removesuffix(".")
        origin = f"https://{undotted}" if port == HTTPS else f"https://{undotted}:{port}"
        return cls(host, port, _literal(host), undotted.strip("[]"), origin)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_authority(text: str) -> Authority | None:
    """Parse `host:port`; returns None if it is malformed.

    A host without a port is malformed (RFC 9110, 9.3.6: there is no default port), and so is anything beyond the two.
    """
    return _parsed(text) if len(text) <= _MAX_SIZE else None


@lru_cache(maxsize=1024)  # clients request few origins, and those repeatedly
def _parsed(text: str) -> Authority | None:
    match = _authority(text)
    if match is None:
        return None
    host, port = parse_host(match[1]), int(match[2])
    if host is None or not 1 <= port <= 65_535:
        return None
    return Authority.of(host, port)


def parse_host(text: str) -> str | None:
    """Parse a host alone, an IPv6 address in brackets; returns it as the parser serialises it, or None."""
    if _authority(f"{text}:1") is None:
        return None
    try:
        host: str = can_ada.parse(f"https://{text}/").hostname
    except (ValueError, TypeError):  # invalid; a lone surrogate
        return None
    return host if host.startswith("[") or _name(host) else None


def _literal(host: str) -> Address | None:
    """Return the address in a serialised host, in brackets or in dotted decimal; None for a name."""
    if host.startswith("["):
        return IPv6Address(host[1:-1])
    if not host[-1].isdigit():
        return None
    try:
        return IPv4Address(host)
    except AddressValueError:
        return None  # a name such as "a1"


class HostRules:
    """Hosts to `allow` exclusively, hosts to `deny`, and `ports` beside 443.

    Raises `ConfigurationError` for an invalid host or port.
    """

    def __init__(self, *, allow: Iterable[str] = (), deny: Iterable[str] = (), ports: Iterable[int] = ()) -> None:
        self._allowed = frozenset(map(_rule, allow))
        self._denied = frozenset(map(_rule, deny))
        self._ports = frozenset({HTTPS, *ports})
        for port in self._ports:
            fail_if(not 1 <= port <= 65_535, f"invalid port {port}; expected 1 to 65535")

    def refusal(self, authority: Authority) -> Refusal | None:
        """Return the refusal of a target that these rules reject, or None."""
        if authority.port not in self._ports:
            return Refusal("port", f"port {authority.port} is not allowed")
        if _matches(self._denied, authority):
            return Refusal("host", f"{authority.name} is denied")
        if self._allowed and not _matches(self._allowed, authority):
            return Refusal("host", f"{authority.name} is not an allowed host")
        return None


def _matches(rules: frozenset[str], authority: Authority) -> bool:
    """Return whether a rule names the host or a parent domain; parts of an address match no rule."""
    name = authority.name if rules else ""
    while name and name not in rules:
        _, _, name = name.partition(".")
    return bool(name)


def _rule(text: str) -> str:
    host = parse_host(text.strip())
    if host is None or "*" in host:
        raise ConfigurationError(
            f"invalid host {text!r}; expected a name such as 'example.com', which includes its subdomains, or '[::1]'"
        )
    return host.strip("[]").removesuffix(".")
