"""Which addresses may be connected to, for a URL or a host that untrusted input names.

A table of special-purpose prefixes says which addresses are refused: those that are not globally reachable (IANA's
special-purpose registries, RFC 6890 and RFC 8190), multicast and reserved ones, and those that embed another address,
since a packet to them arrives somewhere else. Of IPv6 only 2000::/3 is global unicast; everything outside is refused
too. `ipaddress.is_global` answers another question, and differently from one patch release of Python to the next.

The operator may allow networks. The rule that cannot be lifted is the one for the prefetch proxy's own listeners: a
tunnel back into the proxy or its admin listener is refused, whatever form the address has.
"""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeAlias

from headgate.errors import ConfigurationError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All global unicast addresses of IPv6 that IANA assigns."""

# The first that contains an address names its purpose, so narrower prefixes come before wider ones.
SPECIAL: Final[tuple[tuple[Network, str], ...]] = (
    (IPv4Network("169.254.169.254/32"), "cloud metadata"),
    (IPv4Network("100.100.100.200/32"), "cloud metadata"),
    (IPv4Network("192.0.0.192/32"), "cloud metadata"),
    (IPv4Network("168.63.129.16/32"), "cloud metadata"),  # the only one of these that is global unicast
    (IPv4Network("0.0.0.0/8"), "this network (RFC 791)"),
    (IPv4Network("10.0.0.0/8"), "private (RFC 1918)"),
    (IPv4Network("100.64.0.0/10"), "shared by a carrier's customers (RFC 6598)"),
    (IPv4Network("127.0.0.0/8"), "loopback (RFC 1122)"),
    (IPv4Network("169.254.0.0/16"), "link-local (RFC 3927)"),
    (IPv4Network("172.16.0.0/12"), "private (RFC 1918)"),
    (IPv4Network("192.0.0.0/24"), "for protocols (RFC 6890)"),
    (IPv4Network("192.0.2.0/24"), "documentation (RFC 5737)"),
    (IPv4Network("192.88.99.0/24"), "a 6to4 relay (RFC 7526)"),
    (IPv4Network("192.168.0.0/16"), "private (RFC 1918)"),
    (IPv4Network("198.18.0.0/15"), "benchmarking (RFC 2544)"),
    (IPv4Network("198.51.100.0/24"), "documentation (RFC 5737)"),
    (IPv4Network("203.0.113.0/24"), "documentation (RFC 5737)"),
    (IPv4Network("224.0.0.0/4"), "multicast (RFC 5771)"),
    (IPv4Network("255.255.255.255/32"), "broadcast (RFC 919)"),
    (IPv4Network("240.0.0.0/4"), "reserved (RFC 1112)"),
    (IPv6Network("fd00:ec2::254/128"), "cloud metadata"),
    (IPv6Network("::/128"), "unspecified (RFC 4291)"),
    (IPv6Network("::1/128"), "loopback (RFC 4291)"),
    (IPv6Network("::/96"), "an IPv4 address, compatible (RFC 4291)"),
    (IPv6Network("::ffff:0:0/96"), "an IPv4 address, mapped (RFC 4291)"),
    (IPv6Network("::ffff:0:0:0/96"), "an IPv4 address, translated (RFC 2765)"),
    (IPv6Network("64:ff9b::/96"), "an IPv4 address behind NAT64 (RFC 6052)"),
    (IPv6Network("64:ff9b:1::/48"), "an IPv4 address behind a local NAT64 (RFC 8215)"),
    (IPv6Network("100::/64"), "discard-only (RFC 6666)"),
    (IPv6Network("100:0:0:1::/64"), "a dummy (RFC 9780)"),
    (IPv6Network("2001::/32"), "an IPv4 address behind Teredo (RFC 4380)"),
    (IPv6Network("2001:2::/48"), "benchmarking (RFC 5180)"),
    (IPv6Network("2001:10::/28"), "a hash, ORCHID (RFC 4843)"),
    (IPv6Network("2001:20::/28"), "a hash, ORCHIDv2 (RFC 7343)"),
    (IPv6Network("2001:30::/28"), "a drone remote ID (RFC 9374)"),
    (IPv6Network("2001::/23"), "for protocols (RFC 2928)"),
    (IPv6Network("2001:db8::/32"), "documentation (RFC 3849)"),
    (IPv6Network("2002::/16"), "an IPv4 address behind 6to4 (RFC 3056)"),
    (IPv6Network("3fff::/20"), "documentation (RFC 9637)"),
    (IPv6Network("5f00::/16"), "segment routing (RFC 9602)"),
    (IPv6Network("fc00::/7"), "unique local (RFC 4193)"),
    (IPv6Network("fe80::/10"), "link-local (RFC 4291)"),
    (IPv6Network("fec0::/10"), "site-local (RFC 3879)"),
    (IPv6Network("ff00::/8"), "multicast (RFC 4291)"),
)
"""Each prefix and its purpose."""

# Those of these prefixes whose last 32 bits are an IPv4 address.
_ENDS_IN_IPV4: Final = tuple(
    IPv6Network(prefix) for prefix in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)

# As integers: comparing objects would cost ten times as much, for every address of every CONNECT.
_ROWS: Final = {
    version: tuple(
        (int(network.netmask), int(network.network_address), f"{purpose}, in {network}")
        for network, purpose in (*SPECIAL, (GLOBAL_UNICAST, ""))
        if network.version == version
    )
    for version in (4, 6)
}


class AddressRules:
    """Allows every address outside the table, those in `allowed` networks, and none of the proxy's own `listeners`.

    `listeners` are the addresses and ports that sockets are bound to. One that is bound to a wildcard listens at every
    address that `is_local_address` reports, of either family.
    """

    def __init__(
        self,
        allowed: Iterable[Network] = (),
        *,
        listeners: Iterable[tuple[Address, int]] = (),
        is_local_address: Callable[[Address], bool] = lambda _address: False,
    ) -> None:
        self._allowed = tuple(allowed)
        self._own: dict[int, set[Address]] = {}
        self._wildcard_ports: set[int] = set()
        self._is_local_address = is_local_address
        for address, port in listeners:
            destinations = possible_destinations(address)
            self._own.setdefault(port, set()).update(destinations)
            if any(destination.is_unspecified for destination in destinations):
                self._wildcard_ports.add(port)

    def forbids(self, address: Address, port: int) -> str | None:
        """Return why an address must not be connected to, as a clause that follows "is"; None if it may be."""
        if port in self._own and any(self._is_own(each, port) for each in possible_destinations(address)):
            return "where the proxy itself listens"
        if any(address in network for network in self._allowed):
            return None
        return special_purpose(address)

    def may_change(self, port: int) -> bool:
        """Return whether the answer for this port depends on the machine's present addresses."""
        return port in self._wildcard_ports

    def _is_own(self, destination: Address, port: int) -> bool:
        if destination.is_unspecified or destination in self._own[port]:
            return True  # systems connect to themselves for the unspecified address
        return port in self._wildcard_ports and self._is_local_address(destination)


def special_purpose(address: Address) -> str | None:
    """Return why an address is special, "loopback (RFC 1122), in 127.0.0.0/8"; None for any other."""
    number = int(address)
    for mask, first, purpose in _ROWS[address.version]:
        if number & mask == first:
            return None if first == int(GLOBAL_UNICAST.network_address) else purpose
    return None if address.version == 4 else f"not global unicast, outside {GLOBAL_UNICAST}"


def possible_destinations(address: Address) -> tuple[Address, ...]:
    """Return where a connection to an address may arrive: there, without the zone, and at an embedded IPv4 address."""
    if address.version == 4:
        return (address,)
    number = int(address)
    plain = IPv6Address(number)
    if any(plain in network for network in _ENDS_IN_IPV4):
        return (plain, IPv4Address(number & 0xFFFF_FFFF))
    return (plain,)


def parse_network(text: str) -> Network:
    """Parse a CIDR or one address, as in `--allow-address`; raises `ConfigurationError`.

    Host bits are an error: `10.1.2.3/8` may have meant one address, and would allow millions.
    """
    try:
        return ip_network(text.strip())
    except ValueError:
        raise ConfigurationError(
            f"invalid network {text!r}; expected an address, or a prefix without host bits such as '10.0.0.0/8'"
        ) from None
