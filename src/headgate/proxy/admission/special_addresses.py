"""Every prefix whose addresses are not to be dialled for a stranger, and why: one table, of our own.

What is in it is not globally reachable (IANA's special-purpose registries for IPv4 and IPv6, RFC 6890 and RFC 8190), is
multicast or reserved, or has another address inside it, whatever that one is: a packet to such an address comes out
somewhere else. `ipaddress.is_global` answers another question, and answers it differently from one patch release of
Python to the next. Of IPv6 only 2000::/3 is global unicast; all that this table does not name is refused as well.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from headgate.proxy.net.endpoint import Address, Network

__all__ = ["GLOBAL_UNICAST", "SPECIAL", "possible_destinations", "special_purpose"]

GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All that IANA hands out of IPv6."""

# The first that holds an address says what it is, so the narrower stand before the wider.
SPECIAL: Final[tuple[tuple[Network, str], ...]] = (
    (IPv4Network("169.254.169.254/32"), "a cloud's metadata"),
    (IPv4Network("100.100.100.200/32"), "a cloud's metadata"),
    (IPv4Network("192.0.0.192/32"), "a cloud's metadata"),
    (IPv4Network("168.63.129.16/32"), "a cloud's metadata"),  # the one among them that is global unicast
    (IPv4Network("0.0.0.0/8"), "this network (RFC 791)"),
    (IPv4Network("10.0.0.0/8"), "private (RFC 1918)"),
    (IPv4Network("100.64.0.0/10"), "shared by a carrier's customers (RFC 6598)"),
    (IPv4Network("127.0.0.0/8"), "loopback (RFC 1122)"),
    (IPv4Network("169.254.0.0/16"), "link-local (RFC 3927)"),
    (IPv4Network("172.16.0.0/12"), "private (RFC 1918)"),
    (IPv4Network("192.0.0.0/24"), "for protocols (RFC 6890)"),
    (IPv4Network("192.0.2.0/24"), "documentation (RFC 5737)"),
    (IPv4Network("192.88.99.0/24"), "a relay to 6to4 (RFC 7526)"),
    (IPv4Network("192.168.0.0/16"), "private (RFC 1918)"),
    (IPv4Network("198.18.0.0/15"), "benchmarking (RFC 2544)"),
    (IPv4Network("198.51.100.0/24"), "documentation (RFC 5737)"),
    (IPv4Network("203.0.113.0/24"), "documentation (RFC 5737)"),
    (IPv4Network("224.0.0.0/4"), "multicast (RFC 5771)"),
    (IPv4Network("255.255.255.255/32"), "broadcast (RFC 919)"),
    (IPv4Network("240.0.0.0/4"), "reserved (RFC 1112)"),
    (IPv6Network("fd00:ec2::254/128"), "a cloud's metadata"),
    (IPv6Network("::/128"), "unspecified (RFC 4291)"),
    (IPv6Network("::1/128"), "loopback (RFC 4291)"),
    (IPv6Network("::/96"), "an IPv4 address, compatible (RFC 4291)"),
    (IPv6Network("::ffff:0:0/96"), "an IPv4 address, mapped (RFC 4291)"),
    (IPv6Network("::ffff:0:0:0/96"), "an IPv4 address, translated (RFC 2765)"),
    (IPv6Network("64:ff9b::/96"), "an IPv4 address behind NAT64 (RFC 6052)"),
    (IPv6Network("64:ff9b:1::/48"), "an IPv4 address behind a local NAT64 (RFC 8215)"),
    (IPv6Network("100::/64"), "discarded (RFC 6666)"),
    (IPv6Network("100:0:0:1::/64"), "a dummy (RFC 9780)"),
    (IPv6Network("2001::/32"), "an IPv4 address behind Teredo (RFC 4380)"),
    (IPv6Network("2001:2::/48"), "benchmarking (RFC 5180)"),
    (IPv6Network("2001:10::/28"), "a hash, ORCHID (RFC 4843)"),
    (IPv6Network("2001:20::/28"), "a hash, ORCHIDv2 (RFC 7343)"),
    (IPv6Network("2001:30::/28"), "a drone's identity (RFC 9374)"),
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
"""Each prefix, and what its addresses are."""

# Of all these, those whose last 32 bits are an IPv4 address.
_ENDS_IN_IPV4: Final = tuple(
    IPv6Network(prefix) for prefix in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)

# As numbers: an object for each comparison would cost ten times as much, for every address of every CONNECT.
_ROWS: Final = {
    version: tuple(
        (int(network.netmask), int(network.network_address), f"{words}, in {network}")
        for network, words in (*SPECIAL, (GLOBAL_UNICAST, ""))
        if network.version == version
    )
    for version in (4, 6)
}


def special_purpose(address: Address) -> str | None:
    """Say what an address is that is not to be dialled, "loopback (RFC 1122), in 127.0.0.0/8"; None of any other."""
    number = int(address)
    for mask, first, words in _ROWS[address.version]:
        if number & mask == first:
            return None if first == int(GLOBAL_UNICAST.network_address) else words
    return None if address.version == 4 else f"not global unicast, outside {GLOBAL_UNICAST}"


def possible_destinations(address: Address) -> tuple[Address, ...]:
    """Give where a connection to an address may come out: there, without its zone, and at an IPv4 address inside it."""
    if address.version == 4:
        return (address,)
    number = int(address)
    plain = IPv6Address(number)
    if any(plain in network for network in _ENDS_IN_IPV4):
        return (plain, IPv4Address(number & 0xFFFF_FFFF))
    return (plain,)
