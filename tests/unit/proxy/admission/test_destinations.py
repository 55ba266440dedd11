"""Which addresses may be connected to, and the endpoints of a target."""

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from headgate.errors import ConfigurationError
from headgate.fetch.destinations import SPECIAL, Address, AddressRules, parse_network, special_purpose
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.destinations import Overrides, Resolver
from headgate.proxy.refusal import Refusal

PORT = 8443


def rules(*allowed: str, listeners: tuple[str, ...] = (), local: tuple[str, ...] = ()) -> AddressRules:
    here = {ip_address(each) for each in local}
    return AddressRules(
        map(parse_network, allowed),
        listeners=[(ip_address(each), PORT) for each in listeners],
        is_local_address=here.__contains__,
    )


def forbids(rules: AddressRules, address: str, port: int = PORT) -> str | None:
    return rules.forbids(ip_address(address), port)


EVERYWHERE = ("0.0.0.0/0", "::/0")
ITSELF = "where the proxy itself listens"


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
def test_a_wildcard_listens_at_every_local_address(wildcard: str) -> None:
    here = ("127.0.0.1", "203.0.113.7", "2001:db8::7", "::1")
    allowing = rules(*EVERYWHERE, listeners=(wildcard,), local=here)
    for address in (*here, "::ffff:203.0.113.7", "0.0.0.0", "::"):
        assert forbids(allowing, address) == ITSELF, address
        assert forbids(allowing, address, PORT + 1) is None, address
    assert forbids(allowing, "203.0.113.8") is None


def test_a_listener_may_have_a_global_address_and_a_zone() -> None:
    listening = rules(listeners=("93.184.216.34", "fe80::1%eth0"))
    assert forbids(listening, "93.184.216.34") == ITSELF
    assert forbids(listening, "93.184.216.34", 443) is None
    assert forbids(listening, "fe80::1") == ITSELF
    assert forbids(listening, "fe80::1%eth1") == ITSELF


def test_local_addresses_matter_only_at_the_port_of_a_wildcard() -> None:
    asked: list[Address] = []
    listening = AddressRules(
        listeners=[(ip_address("0.0.0.0"), PORT), (ip_address("127.0.0.1"), 9000)],
        is_local_address=lambda address: bool(asked.append(address)),
    )
    assert listening.forbids(ip_address("8.8.8.8"), 443) is None
    assert listening.forbids(ip_address("8.8.8.8"), 9000) is None
    assert asked == []
    assert listening.forbids(ip_address("8.8.8.8"), PORT) is None
    assert asked == [ip_address("8.8.8.8")]


def test_invalid_networks_are_errors_of_one_line() -> None:
    for text in ("", "10.0.0.1/8", "10.0.0.0/33", "10.0.0", "localhost", "127.1", "[::1]", "::1/129"):
        with pytest.raises(ConfigurationError) as raised:
            parse_network(text)
        assert str(raised.value).startswith(f"invalid network {text!r}")
        assert "\n" not in str(raised.value)


def split(text: str) -> list[str]:
    return text.split()


# IANA's special-purpose registries: every row that is not "globally reachable", or that embeds an IPv4 address; and
# what is multicast, or was assigned once.
REGISTERED = split("""
    0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
    192.0.0.8/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 198.18.0.0/15
    198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 255.255.255.255/32 224.0.0.0/4 233.252.0.0/24
    ::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:2::/48
    2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10
    ff00::/8
""")

# What the rules of a public tunnel add: the rest of what embeds, cloud metadata services, and unassigned space.
ADDED = split("""
    ::/96 ::ffff:0:0:0/96 192.0.0.9/32 192.0.0.10/32 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:3::/32
    2001:4:112::/48 169.254.169.254/32 fd00:ec2::254/128 100.100.100.200/32 192.0.0.192/32 168.63.129.16/32
    ::/3 4000::/3 6000::/3 8000::/3 a000::/3 c000::/3 e000::/4 f000::/5 f800::/6 fe00::/9
""")

BESIDE = split("""
    1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
    168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0
    192.0.3.0 192.31.196.1 192.52.193.1 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 192.175.48.1
    198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255
    2000:: 2001:200:: 2001:db7:ffff:: 2001:db9:: 2001:4860:4860::8888 2003:: 2606:4700::1111 2620:4f:8000::1 3ffe::
    3fff:1000:: 3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
""")


def test_every_special_prefix_is_forbidden_as_a_whole() -> None:
    for prefix in REGISTERED + ADDED:
        network = ip_network(prefix)
        first, last = int(network[0]), int(network[-1])
        kind = type(network[0])
        for number in {first, last, (first + last) // 2, min(first + 1, last), max(last - 1, first)}:
            assert special_purpose(kind(number)), kind(number)


def test_neighbours_of_special_prefixes_are_global() -> None:
    for address in BESIDE:
        assert special_purpose(ip_address(address)) is None, address


def test_the_narrowest_prefix_names_the_purpose() -> None:
    assert special_purpose(IPv4Address("169.254.169.254")) == "cloud metadata, in 169.254.169.254/32"
    assert special_purpose(IPv4Address("255.255.255.255")) == "broadcast (RFC 919), in 255.255.255.255/32"
    assert special_purpose(IPv6Address("::1")) == "loopback (RFC 4291), in ::1/128"
    assert special_purpose(IPv6Address("2001::1")) == "an IPv4 address behind Teredo (RFC 4380), in 2001::/32"
    assert special_purpose(IPv6Address("4000::")) == "not global unicast, outside 2000::/3"
    for index, (wide, _) in enumerate(SPECIAL):
        assert not any(isinstance(narrow, type(wide)) and narrow.subnet_of(wide) for narrow, _ in SPECIAL[index + 1 :])


CLIENT = b"client"


class Lookup:
    """Returns `answers` one after another."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, client: bytes) -> Sequence[Address]:
        assert client == CLIENT
        self.asked.append(host)
        return [ip_address(address) for address in self.answers[len(self.asked) - 1]]


def resolver(lookup: Lookup, *overrides: str, allowed: Sequence[str] = ()) -> Resolver:
    rules = AddressRules(
        map(parse_network, allowed), listeners=[(ip_address("127.0.0.1"), PORT)], is_local_address=lambda address: False
    )
    return Resolver(rules, lookup, overrides=Overrides(overrides))


def resolve(made: Resolver, text: str) -> list[str]:
    authority = parse_authority(text)
    assert authority is not None
    return [str(endpoint) for endpoint in asyncio.run(made.resolve(authority, CLIENT))]


def refused(made: Resolver, text: str) -> Refusal:
    with pytest.raises(Refusal) as raised:
        resolve(made, text)
    return raised.value


def test_a_name_is_looked_up_once() -> None:
    lookup = Lookup(["2606:4700::1", "93.184.216.34"])
    assert resolve(resolver(lookup), "www.test:443") == ["[2606:4700::1]:443", "93.184.216.34:443"]
    assert lookup.asked == ["www.test"]


def test_the_serialised_name_is_looked_up() -> None:
    lookup = Lookup(["93.184.216.34"])
    resolve(resolver(lookup), "WWW.test.:443")
    assert lookup.asked == ["www.test."]  # the dot keeps a search list away from it


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["10.0.0.1", "93.184.216.34"]])
def test_one_forbidden_address_refuses_the_name(answers: list[str]) -> None:
    refusal = refused(resolver(Lookup(answers)), "www.test:443")
    assert refusal.reason == "address"
    assert refusal.rule.error == "destination_ip_prohibited"
    assert refusal.detail == "www.test:443 is at 10.0.0.1, which is private (RFC 1918), in 10.0.0.0/8"


def test_an_address_is_not_looked_up() -> None:
    lookup = Lookup()
    made = resolver(lookup, "*=93.184.216.35")
    assert resolve(made, "93.184.216.34:443") == ["93.184.216.34:443"]
    assert refused(made, "0x7f.1:443").reason == "address"
    assert lookup.asked == []


def test_an_override_replaces_the_lookup_and_is_checked() -> None:
    lookup = Lookup()
    made = resolver(lookup, "a.test=93.184.216.34:444", "*=10.1.2.3")
    assert resolve(made, "a.test:443") == ["93.184.216.34:444"]
    assert refused(made, "b.test:443").reason == "address"
    assert lookup.asked == []


def test_endpoints_without_a_lookup_are_cached() -> None:
    """What the configuration says does not change; the addresses of this machine do."""
    local: set[Address] = set()
    rules = AddressRules(
        [parse_network("127.0.0.0/8")], listeners=[(ip_address("0.0.0.0"), PORT)], is_local_address=local.__contains__
    )
    made = Resolver(rules, Lookup(), overrides=Overrides(["moved.test=127.0.0.1:8443", "*=127.0.0.1"]))
    texts = ["a.test:443", "a.test:8444", "127.0.0.2:443", "moved.test:443", f"b.test:{PORT}", f"127.0.0.3:{PORT}"]
    endpoints = [resolve(made, text) for text in texts]
    assert endpoints == [
        ["127.0.0.1:443"], ["127.0.0.1:8444"], ["127.0.0.2:443"], ["127.0.0.1:8443"], ["127.0.0.1:8443"],
        ["127.0.0.3:8443"],
    ]  # fmt: skip
    assert [resolve(made, text) for text in texts] == endpoints
    local.update({ip_address("127.0.0.1"), ip_address("127.0.0.3")})
    assert [resolve(made, text) for text in texts[:3]] == endpoints[:3]
    for text in texts[3:]:
        assert refused(made, text).detail.endswith("where the proxy itself listens")


def test_looked_up_and_refused_names_are_not_cached() -> None:
    lookup = Lookup(["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34"])
    made = resolver(lookup)
    assert resolve(made, "www.test:443") == ["93.184.216.34:443"]
    for _ in range(2):
        assert refused(made, "127.0.0.1:443").reason == "address"
    assert refused(made, "www.test:443").reason == "address"
    assert resolve(made, "www.test:443") == ["93.184.216.34:443"]


def override(overrides: Overrides, text: str) -> list[str]:
    authority = parse_authority(text)
    assert authority is not None
    return [str(endpoint) for endpoint in overrides.endpoints(authority)]


def test_entries_and_the_endpoints_of_a_target() -> None:
    for entries, target, endpoints in (
        ("a.test=127.0.0.1", "A.test.:8443", "127.0.0.1:8443"),
        ("A.TEST.=127.0.0.1:8443", "a.test:443", "127.0.0.1:8443"),
        ("a.test=::1", "a.test:443", "[::1]:443"),
        ("a.test=[::1]", "a.test:443", "[::1]:443"),
        ("a.test=[::1]:8443", "a.test:443", "[::1]:8443"),
        ("a.test=::ffff:127.0.0.1", "a.test:443", "[::ffff:7f00:1]:443"),
        ("a.test=2001:db8::8443", "a.test:443", "[2001:db8::8443]:443"),
        ("a.test=::1 a.test=127.0.0.1:81", "a.test:443", "[::1]:443 127.0.0.1:81"),
        # An entry does not include subdomains; a star is for names without an entry, and no address.
        ("a.test=127.0.0.1", "b.a.test:443", ""),
        ("a.test=127.0.0.1", "test:443", ""),
        ("*=127.0.0.1:8443 a.test=127.0.0.2", "a.test:443", "127.0.0.2:443"),
        ("*=127.0.0.1:8443 a.test=127.0.0.2", "b.a.test:443", "127.0.0.1:8443"),
        ("*=127.0.0.1", "0x5db8d822:443", ""),
        ("*=127.0.0.1", "[2606:4700::1]:443", ""),
        ("93.184.216.34=127.0.0.1:8443", "0x5db8d822:443", "127.0.0.1:8443"),
        ("[2606:4700::1]=127.0.0.2", "[2606:4700:0::1]:443", "127.0.0.2:443"),
    ):
        assert override(Overrides(entries.split()), target) == endpoints.split(), entries


INVALID_ENTRIES = [
    "", "=", "a.test", "a.test=", "=127.0.0.1", "a.test=localhost", "a.test=127.1", "a.test=0x7f.0.0.1",
    "a.test=256.0.0.1", "a.test=127.0.0.1:", "a.test=127.0.0.1:0", "a.test=127.0.0.1:65536", "a.test=127.0.0.1:x",
    "a.test=[127.0.0.1]", "a.test=[::1", "a.test=::1]", "a.test=[::1]:", "a.test=[::1]x", "a.test=fe80::1%lo",
    "a.test:443=127.0.0.1", "a.test:443:127.0.0.1", "*.test=127.0.0.1", "a b=127.0.0.1", "::1=127.0.0.1",
    "a.test=127.0.0.1=127.0.0.2", "a.test= 127.0.0.1", "a.test=\uff11.2.3.4", "a.test=127.0.0.1:\uff14",
]  # fmt: skip


def test_invalid_entries_are_errors_of_one_line() -> None:
    for entry in INVALID_ENTRIES:
        with pytest.raises(ConfigurationError) as raised:
            Overrides([entry])
        assert str(raised.value).startswith(
            f"invalid address {entry!r}; expected HOST=ADDRESS or HOST=ADDRESS:PORT, such as "
        )
        assert "\n" not in str(raised.value)
