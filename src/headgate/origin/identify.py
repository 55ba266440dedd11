"""The identifier of a request, as bytes: by client address or by a header.

An `Identify` is called with a `RequestInfo` and returns bytes. `client_address` accepts forwarding fields only from
listed proxies, `header` reads one field, and any callable can be used. Untrusted values never raise here, and every
cache is bounded.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from headgate.errors import ConfigurationError, fail_if
from headgate.http.conditions import Texts
from headgate.http.fields import is_token
from headgate.limit.messages import header_identifier, short_identifier
from headgate.origin.request_info import (
    RequestInfo,
    cookie_value,
    field_value,
    forwarded_hops,
    path_segment,
    x_forwarded_for_hops,
)

UNKNOWN = b"unknown"
"""The identifier of a peer without an address: a unix socket, or an unknown one (the word of RFC 7239)."""

AGENT = "web-bot-auth"
"""The method that identifies by the verified agent."""

MAX_CACHED_ADDRESSES = 16_384
MAX_IDENTIFIER_SIZE = 255
_READERS: dict[str, Callable[[bytes], Iterator[str]]] = {
    "forwarded": forwarded_hops,
    "x-forwarded-for": x_forwarded_for_hops,
}

_MAX_SEGMENT = 64
_FIELDS = ("X-Forwarded-For",)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Identify(Protocol):
    """Identifies requests."""

    def __call__(self, info: RequestInfo, /) -> bytes:
        """Return the identifier of a request."""

    def per_connection(self, peer: str, /) -> bytes | None:
        """Return the identifier of every request from `peer`, or None when fields can change it."""


def client_address(
    trusted: Iterable[str] = (), *, ipv6_prefix: int = 64, fields: Iterable[str] = _FIELDS
) -> "ClientAddress":
    """Identify by the client's address; IPv6 by its network of `ipv6_prefix` bits, IPv4-mapped IPv6 as IPv4.

    `trusted` lists the CIDRs of your own proxies, and `unix` for a peer without an address. `fields` are accepted from
    them and from no other peer: the chain is walked from its right end to the first address that is not trusted. Name
    in `fields` only what your proxies write, Forwarded or X-Forwarded-For; where both are present and disagree, one of
    them may be forged, and neither is used. Raises `ConfigurationError` for an invalid CIDR or prefix.
    """
    fail_if(not 1 <= ipv6_prefix <= 128, f"ipv6_prefix must be from 1 to 128, got {ipv6_prefix}")
    names = [name.lower() for name in fields]
    for name in names:
        fail_if(name not in _READERS, f"unknown forwarding field {name!r}; use Forwarded or X-Forwarded-For")
    return ClientAddress(tuple(trusted), ipv6_prefix, {name.encode(): _READERS[name] for name in names})


def header(name: bytes | str, fallback: Identify | None = None) -> Identify:
    """Identify by the value of the field `name`; by `fallback`, the client address, when it is absent or empty.

    A repeated field counts as absent: an application reads one of its lines, and with all of them as its identifier a
    client would have a new budget for each line that it adds. Use only a field that a proxy in front
    has authenticated: a client can send any value in other fields.
    The identifier is `=` and the value, so it is never that of an address; the scheme of Authorization is in lower
    case. A value longer than 254 bytes counts as its SHA-256: a longer identifier cannot be named in a control message.
    Raises `ConfigurationError` for a name that no field can have.
    """
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    fail_if(
        not isinstance(text, str) or not is_token(text.strip()),
        f"invalid header name {name!r:.80}; expected one such as 'X-Api-Key'",
    )
    return Header(text.strip().lower().encode(), fallback or client_address())


def parse_identify(
    text: str,
    trusted: Iterable[str] = (),
    *,
    ipv6_prefix: int = 64,
    fields: Iterable[str] = _FIELDS,
    agents: bool = False,
) -> Identify:
    """Read `client-address` or `header:NAME`; raises `ConfigurationError`, quoting `text`, for anything else.

    With `agents`, `web-bot-auth` is read too. The other arguments are those of `client_address`.
    """
    identify = identify_by(text, client_address(trusted, ipv6_prefix=ipv6_prefix, fields=fields))
    fail_if(
        isinstance(identify, PerRequest) and not (agents and isinstance(identify, ByAgent)),
        f"invalid identify {text!r}; expected 'client-address' or a header such as 'header:X-Api-Key'",
    )
    return identify


def identify_by(methods: Texts, address: Identify) -> Identify:
    """Read `client-address`, `header:NAME`, `cookie:NAME`, `path:NUMBER`, or a list that is combined to one identifier.

    `web-bot-auth`, alone or first in a list, is the URL of the verified agent; the rest of the list identifies requests
    without one. No other identifier begins with `https://`. `path:1` is the first segment of the path. Where the value
    is absent, `address` identifies. As with `header`, the identifier is `=` and the value; percent-encoded values
    joined by `&` are that of a list. Raises `ConfigurationError` for anything else.
    """
    if not isinstance(methods, str):
        fail_if(not methods, "identify: the list is empty; expected methods such as 'client-address'")
        first, *rest = methods
        if first == AGENT:
            return ByAgent(identify_by(rest[0] if len(rest) == 1 else tuple(rest) or "client-address", address))
        fail_if(
            AGENT in rest, f"identify: {AGENT!r} must be the first of a list; the rest is for requests without an agent"
        )
        parts = [identify_by(method, address) for method in methods]
        return PerRequest(
            lambda info: short_identifier("&".join([quote(part(info), safe="=:/") for part in parts]).encode())
        )
    if methods.strip() == AGENT:
        return ByAgent(address)
    source, _, name = (part.strip() for part in methods.partition(":"))
    if methods.strip() == "client-address":
        return address
    if source == "header" and is_token(name):
        return header(name, address)
    if source == "cookie" and is_token(name):
        cookie = re.compile(rb"(?:^|;)[ \t]*+" + re.escape(name.encode()) + rb"[ \t]*+=([^;]*+)")
        return PerRequest(lambda info: _named(cookie_value(info, cookie)) or address(info))
    if source == "path" and name.isascii() and name.isdigit() and 0 < int(name[:9]) <= _MAX_SEGMENT:
        number = int(name)
        return PerRequest(lambda info: _named(path_segment(info, number)) or address(info))
    raise ConfigurationError(
        f"invalid identify {methods!r}; expected 'client-address', 'header:NAME', 'cookie:NAME', 'path:NUMBER' from "
        f"1 to {_MAX_SEGMENT}, or {AGENT!r}"
    )


def _named(value: bytes) -> bytes:
    return header_identifier(b"", value) if value else b""


class PerRequest:
    """Identifies by a function of the request alone."""

    def __init__(self, identify: Callable[[RequestInfo], bytes]) -> None:
        self._identify = identify

    def __call__(self, info: RequestInfo, /) -> bytes:
        """Return the identifier of a request."""
        return self._identify(info)

    def per_connection(self, _peer: str, /) -> bytes | None:
        """Return None: it depends on the request."""
        return None


class ByAgent(PerRequest):
    """Identifies by the verified agent, which something has found before; without one, by `fallback`."""

    def __init__(self, fallback: Identify) -> None:
        super().__init__(lambda info: info.agent.encode() or fallback(info))
        self.fallback = fallback


class Header:
    """What `header` returns: reads the field `name`, in lower case; without one single line, `fallback` identifies.

    A server that can look up one field cheaply does that, and calls `of` with the value of its only line.
    """

    def __init__(self, name: bytes, fallback: Identify) -> None:
        self.name = name
        self.fallback = fallback

    def __call__(self, info: RequestInfo, /) -> bytes:
        """Return the field's value as an identifier, or what the fallback returns."""
        return self.of(info.single_field(self.name)) or self.fallback(info)

    def of(self, value: bytes | None) -> bytes | None:
        """Return the identifier for a value; None when it is absent or empty."""
        value = value.strip() if value else b""
        return header_identifier(self.name, value) if value else None

    def per_connection(self, _peer: str, /) -> bytes | None:
        """Return None: any request may have the field."""
        return None


class ClientAddress:
    """What `client_address` returns."""

    def __init__(
        self, trusted: tuple[str, ...], ipv6_prefix: int, readers: dict[bytes, Callable[[bytes], Iterator[str]]]
    ) -> None:
        self.readers = readers
        """Reads each field that is accepted, by its name in lower case."""
        self._ipv6_prefix = ipv6_prefix
        self._trusts_unix = "unix" in trusted
        self._proxies = AddressSet((text for text in trusted if text != "unix"), ", or 'unix'")
        # Parsing an address takes microseconds, and few addresses send most requests. One bounded cache per object.
        self._known = lru_cache(MAX_CACHED_ADDRESSES)(self._look_up)
        self.per_connection = lru_cache(MAX_CACHED_ADDRESSES)(self._without_fields)

    def __call__(self, info: RequestInfo, /) -> bytes:
        """Return the identifier of the client of a request."""
        identifier, trusted = self._of_peer(info.peer)
        hops = self.chain(info.fields) if trusted else None
        return self._of_peer(hops[0])[0] if hops else identifier

    def address(self, info: RequestInfo) -> str:
        """Return the address of the client of a request; that of the peer if its fields are not accepted."""
        hops = self.chain(info.fields) if self.trusts(info.peer) else None
        return hops[0] if hops else info.peer

    def trusts(self, peer: str) -> bool:
        """Return whether the fields of a peer are accepted."""
        return self._of_peer(peer)[1]

    def chain(self, fields: list[tuple[bytes, bytes]]) -> list[str] | None:
        """Return the addresses in the fields of a trusted peer, from the client to the hop before the peer.

        What stands before the client, the first address from the right that is not trusted, is left out. None where two
        fields name different clients.
        """
        found = {}
        for name, reader in self.readers.items():
            value = field_value(fields, name)
            if value is not None:
                hops = self._walk(reader(value))
                found[self._of_peer(hops[0])[0] if hops else b""] = hops
        return (next(iter(found.values())) if found else []) if len(found) < 2 else None

    def _look_up(self, text: str) -> tuple[bytes, bool] | None:
        """Return the identifier of an address and whether it is trusted; None for a text that is not an address."""
        address = parse_address(text)
        if address is None:
            return None
        return _identifier(address, self._ipv6_prefix), self._proxies.has(text)

    def _without_fields(self, peer: str, /) -> bytes | None:
        identifier, trusted = self._of_peer(peer)
        return None if trusted and self.readers else identifier

    def _of_peer(self, peer: str) -> tuple[bytes, bool]:
        known = self._known(peer) if peer else None
        return known or (UNKNOWN, self._trusts_unix)

    def _walk(self, hops: Iterator[str]) -> list[str]:
        """Return the hops, nearest first, to the first that is not trusted, or before one without an address."""
        walked: list[str] = []
        for hop in hops:
            known = self._known(hop) if hop else None
            if known is None:
                # The hop before is unnamed or malformed: hops beyond it cannot be trusted.
                break
            walked.append(hop)
            if not known[1]:
                break
        return walked[::-1]


class AddressSet:
    """Addresses and networks, written as CIDRs; a lookup takes the same time for any number of them.

    An IPv4-mapped IPv6 address or network is the IPv4 one inside. Raises `ConfigurationError` for another text.
    """

    def __init__(self, texts: Iterable[str], expected: str = "") -> None:
        self._prefixes: dict[tuple[int, int], set[int]] = {}
        for text in texts:
            network = _network(text, expected)
            shift = network.max_prefixlen - network.prefixlen
            self._prefixes.setdefault((network.version, shift), set()).add(int(network.network_address) >> shift)
        self.has = lru_cache(MAX_CACHED_ADDRESSES)(self._look_up)
        """Returns whether the address in a text is among them."""

    def _look_up(self, text: str) -> bool:
        address = parse_address(text)
        version, number = (0, 0) if address is None else (address.version, int(address))
        return any(family == version and number >> shift in of for (family, shift), of in self._prefixes.items())


def _network(text: str, expected: str) -> _Network:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigurationError(
            f"invalid address {text!r}; expected an address or a CIDR such as '127.0.0.0/8' or '::1'{expected}"
        ) from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is not None and network.prefixlen >= 96:
        return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def parse_address(text: str) -> _Address | None:
    """Return the address that a text is, an IPv4 address also for a mapped one; None if it is not one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _identifier(address: _Address, ipv6_prefix: int) -> bytes:
    if isinstance(address, ipaddress.IPv4Address) or ipv6_prefix == 128:
        return str(address).encode()
    return str(ipaddress.ip_network((address, ipv6_prefix), strict=False)).encode()
