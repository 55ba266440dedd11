"""The table against the registries, as Python of several years has them, and against itself."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import pytest

from headgate.proxy.admission.special_addresses import SPECIAL, possible_destinations, special_purpose


def words(text: str) -> list[str]:
    return text.split()


# IANA's special-purpose registries: every row that is not "globally reachable", or that embeds an IPv4 address; and
# what is multicast, or was assigned once.
REGISTERED = words("""
    0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
    192.0.0.8/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 198.18.0.0/15
    198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 255.255.255.255/32 224.0.0.0/4 233.252.0.0/24
    ::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:2::/48
    2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10
    ff00::/8
""")

# What the rules of a public tunnel add: the rest of what embeds, what clouds answer at, and what is nobody's.
ADDED = words("""
    ::/96 ::ffff:0:0:0/96 192.0.0.9/32 192.0.0.10/32 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:3::/32
    2001:4:112::/48 169.254.169.254/32 fd00:ec2::254/128 100.100.100.200/32 192.0.0.192/32 168.63.129.16/32
    ::/3 4000::/3 6000::/3 8000::/3 a000::/3 c000::/3 e000::/4 f000::/5 f800::/6 fe00::/9
""")

BESIDE = words("""
    1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
    168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0
    192.0.3.0 192.31.196.1 192.52.193.1 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 192.175.48.1
    198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255
    2000:: 2001:200:: 2001:db7:ffff:: 2001:db9:: 2001:4860:4860::8888 2003:: 2606:4700::1111 2620:4f:8000::1 3ffe::
    3fff:1000:: 3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
""")


@pytest.mark.parametrize("prefix", REGISTERED + ADDED)
def test_nothing_of_a_special_prefix_is_to_be_dialled(prefix: str) -> None:
    network = ip_network(prefix)
    first, last = int(network[0]), int(network[-1])
    kind = type(network[0])
    for number in {first, last, (first + last) // 2, min(first + 1, last), max(last - 1, first)}:
        assert special_purpose(kind(number)), kind(number)


@pytest.mark.parametrize("prefix", REGISTERED)
def test_what_is_registered_is_called_by_its_purpose(prefix: str) -> None:
    said = special_purpose(ip_network(prefix)[0])
    assert said is not None
    assert not said.startswith("not global unicast")


@pytest.mark.parametrize("address", BESIDE)
def test_what_is_beside_the_prefixes_is_global(address: str) -> None:
    assert special_purpose(ip_address(address)) is None


def test_the_narrower_prefix_says_what_an_address_is() -> None:
    assert special_purpose(IPv4Address("169.254.169.254")) == "a cloud's metadata, in 169.254.169.254/32"
    assert special_purpose(IPv4Address("255.255.255.255")) == "broadcast (RFC 919), in 255.255.255.255/32"
    assert special_purpose(IPv6Address("::1")) == "loopback (RFC 4291), in ::1/128"
    assert special_purpose(IPv6Address("2001::1")) == "an IPv4 address behind Teredo (RFC 4380), in 2001::/32"
    assert special_purpose(IPv6Address("4000::")) == "not global unicast, outside 2000::/3"
    for index, (wide, _) in enumerate(SPECIAL):
        assert not any(isinstance(narrow, type(wide)) and narrow.subnet_of(wide) for narrow, _ in SPECIAL[index + 1 :])


def test_a_zone_changes_nothing() -> None:
    assert special_purpose(IPv6Address("fe80::1%eth0")) == special_purpose(IPv6Address("fe80::1"))
    assert possible_destinations(IPv6Address("fe80::1%eth0")) == (IPv6Address("fe80::1"),)


@pytest.mark.parametrize(
    ("address", "places"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("::ffff:127.0.0.1", ["::ffff:7f00:1", "127.0.0.1"]),
        ("::127.0.0.1", ["::7f00:1", "127.0.0.1"]),
        ("::ffff:0:127.0.0.1", ["::ffff:0:7f00:1", "127.0.0.1"]),
        ("64:ff9b::127.0.0.1", ["64:ff9b::7f00:1", "127.0.0.1"]),
        ("64:ff9b:1::127.0.0.1", ["64:ff9b:1::7f00:1", "127.0.0.1"]),
        ("2606:4700::1", ["2606:4700::1"]),
    ],
)
def test_an_address_inside_another_is_a_place_too(address: str, places: list[str]) -> None:
    assert [*possible_destinations(ip_address(address))] == [*map(ip_address, places)]


def test_every_network_of_the_table_is_one_of_the_two_kinds() -> None:
    assert {type(network) for network, _ in SPECIAL} == {IPv4Network, IPv6Network}
