"""Resolving authorities to checked endpoints, and overrides."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.destinations import AddressRules, parse_network
from headgate.proxy.admission.resolver import Overrides, Resolver
from headgate.proxy.net.sockets import Address
from headgate.proxy.refusal import Refusal

PORT = 8443
CLIENT = b"client"


class Lookup:
    """Gives `answers`, one after the other."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, client: bytes) -> Sequence[Address]:
        assert client == CLIENT
        self.asked.append(host)
        return [ip_address(address) for address in self.answers[len(self.asked) - 1]]


def resolver(lookup: Lookup, *overrides: str, allowed: Sequence[str] = ()) -> Resolver:
    rules = AddressRules(
        map(parse_network, allowed),
        listeners=[(ip_address("127.0.0.1"), PORT)],
        is_local_address=lambda address: False,
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


def test_allowed_networks_apply_to_names_and_addresses() -> None:
    lookup = Lookup(["93.184.216.34", "10.0.0.1"])
    made = resolver(lookup, allowed=["10.0.0.0/8"])
    assert resolve(made, "www.test:443") == ["93.184.216.34:443", "10.0.0.1:443"]
    assert resolve(made, "10.0.0.1:443") == ["10.0.0.1:443"]
    assert lookup.asked == ["www.test"]


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


def test_an_override_of_an_address_checks_both() -> None:
    made = resolver(Lookup(), "93.184.216.34=10.0.0.1", "10.0.0.1=93.184.216.34", "8.8.8.8=93.184.216.34:444")
    assert refused(made, "93.184.216.34:443").reason == "address"
    assert refused(made, "10.0.0.1:443").reason == "address"
    assert resolve(made, "8.8.8.8:443") == ["93.184.216.34:444"]


def test_own_listeners_are_refused_at_the_overridden_port() -> None:
    made = resolver(Lookup(["127.0.0.1"]), "a.test=127.0.0.1:8443", "b.test=127.0.0.1:444", allowed=["127.0.0.0/8"])
    assert "the proxy itself" in refused(made, "a.test:443").detail
    assert "the proxy itself" in refused(made, "c.test:8443").detail
    assert resolve(made, "b.test:8443") == ["127.0.0.1:444"]


def test_refusals_of_the_lookup_are_raised() -> None:
    async def fail(host: str, _client: bytes) -> Sequence[Address]:
        raise Refusal("name", f"{host} does not resolve")

    rules = AddressRules(is_local_address=lambda address: False)
    assert refused(Resolver(rules, fail), "www.test:443").reason == "name"


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


@pytest.mark.deep
def test_the_cache_is_limited() -> None:
    made = resolver(Lookup())
    for number in range(3000):
        resolve(made, f"93.184.{number // 256}.{number % 256}:443")
    assert len(made._cache) <= 1024


def override(overrides: Overrides, text: str) -> list[str]:
    authority = parse_authority(text)
    assert authority is not None
    return [str(endpoint) for endpoint in overrides.endpoints(authority)]


@pytest.mark.parametrize(
    ("entry", "endpoint"),
    [
        ("a.test=127.0.0.1", "127.0.0.1:443"),
        ("a.test=127.0.0.1:8443", "127.0.0.1:8443"),
        ("A.TEST.=127.0.0.1", "127.0.0.1:443"),
        ("a.test=::1", "[::1]:443"),
        ("a.test=[::1]", "[::1]:443"),
        ("a.test=[::1]:8443", "[::1]:8443"),
        ("a.test=::ffff:127.0.0.1", "[::ffff:7f00:1]:443"),
        ("a.test=2001:db8::8443", "[2001:db8::8443]:443"),
        (" a.test=127.0.0.1 ", "127.0.0.1:443"),
        ("*=127.0.0.1:8443", "127.0.0.1:8443"),
    ],
)
def test_entries_for_a_name(entry: str, endpoint: str) -> None:
    assert override(Overrides([entry]), "a.test:443") == [endpoint]
    assert override(Overrides([entry]), "A.test.:443") == [endpoint]


def test_without_a_port_the_requested_one_is_used() -> None:
    overrides = Overrides(["a.test=127.0.0.1"])
    assert override(overrides, "a.test:8443") == ["127.0.0.1:8443"]


def test_an_entry_does_not_include_subdomains() -> None:
    overrides = Overrides(["a.test=127.0.0.1"])
    assert override(overrides, "b.a.test:443") == []
    assert override(overrides, "test:443") == []


def test_a_star_matches_names_without_an_entry_and_no_address() -> None:
    overrides = Overrides(["*=127.0.0.1", "a.test=127.0.0.2"])
    assert override(overrides, "a.test:443") == ["127.0.0.2:443"]
    assert override(overrides, "b.a.test:443") == ["127.0.0.1:443"]
    assert override(overrides, "localhost:443") == ["127.0.0.1:443"]
    for literal in ("93.184.216.34", "0x5db8d822", "[2606:4700::1]"):
        assert override(overrides, f"{literal}:443") == []


def test_an_address_may_have_an_entry_of_its_own() -> None:
    overrides = Overrides(["93.184.216.34=127.0.0.1:8443", "[2606:4700::1]=127.0.0.2"])
    assert override(overrides, "0x5db8d822:443") == ["127.0.0.1:8443"]
    assert override(overrides, "[2606:4700:0::1]:443") == ["127.0.0.2:443"]


def test_entries_for_one_host_add_up() -> None:
    overrides = Overrides(["a.test=::1", "a.test=127.0.0.1:81"])
    assert override(overrides, "a.test:443") == ["[::1]:443", "127.0.0.1:81"]


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
        assert str(raised.value).startswith(f"{entry!r} is not HOST=ADDRESS or HOST=ADDRESS:PORT; try ")
        assert "\n" not in str(raised.value)
