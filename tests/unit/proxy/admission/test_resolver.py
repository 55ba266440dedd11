"""From an authority to endpoints that have all been checked."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.destinations import AddressRules, parse_network
from headgate.proxy.admission.overrides import Overrides
from headgate.proxy.admission.resolver import Resolver
from headgate.proxy.net.endpoint import Address
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


def test_a_name_is_looked_up_once_and_every_answer_kept_in_order() -> None:
    lookup = Lookup(["2606:4700::1", "93.184.216.34"])
    assert resolve(resolver(lookup), "www.test:443") == ["[2606:4700::1]:443", "93.184.216.34:443"]
    assert lookup.asked == ["www.test"]


def test_the_resolver_is_asked_for_a_name_as_it_stands() -> None:
    lookup = Lookup(["93.184.216.34"])
    resolve(resolver(lookup), "WWW.test.:443")
    assert lookup.asked == ["www.test."]  # the dot keeps a search list away from it


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["10.0.0.1", "93.184.216.34"]])
def test_one_forbidden_answer_refuses_the_name(answers: list[str]) -> None:
    refusal = refused(resolver(Lookup(answers)), "www.test:443")
    assert refusal.reason == "address"
    assert refusal.rule.error == "destination_ip_prohibited"
    assert refusal.detail == "www.test:443 is at 10.0.0.1, which is private (RFC 1918), in 10.0.0.0/8"


def test_what_is_allowed_counts_for_names_and_addresses() -> None:
    lookup = Lookup(["93.184.216.34", "10.0.0.1"])
    made = resolver(lookup, allowed=["10.0.0.0/8"])
    assert resolve(made, "www.test:443") == ["93.184.216.34:443", "10.0.0.1:443"]
    assert resolve(made, "10.0.0.1:443") == ["10.0.0.1:443"]
    assert lookup.asked == ["www.test"]


def test_an_address_is_looked_up_nowhere() -> None:
    lookup = Lookup()
    made = resolver(lookup, "*=93.184.216.35")
    assert resolve(made, "93.184.216.34:443") == ["93.184.216.34:443"]
    assert refused(made, "0x7f.1:443").reason == "address"
    assert lookup.asked == []


def test_an_override_takes_the_place_of_the_lookup_and_is_checked() -> None:
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


def test_our_own_listener_is_found_at_the_port_that_is_dialled() -> None:
    made = resolver(Lookup(["127.0.0.1"]), "a.test=127.0.0.1:8443", "b.test=127.0.0.1:444", allowed=["127.0.0.0/8"])
    assert "the proxy itself" in refused(made, "a.test:443").detail
    assert "the proxy itself" in refused(made, "c.test:8443").detail
    assert resolve(made, "b.test:8443") == ["127.0.0.1:444"]


def test_what_the_lookup_refuses_is_refused() -> None:
    async def fail(host: str, _client: bytes) -> Sequence[Address]:
        raise Refusal("name", f"{host} does not resolve")

    rules = AddressRules(is_local_address=lambda address: False)
    assert refused(Resolver(rules, fail), "www.test:443").reason == "name"


def test_what_is_no_question_is_asked_once() -> None:
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


def test_what_was_looked_up_is_no_more_remembered_than_what_was_refused() -> None:
    lookup = Lookup(["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34"])
    made = resolver(lookup)
    assert resolve(made, "www.test:443") == ["93.184.216.34:443"]
    for _ in range(2):
        assert refused(made, "127.0.0.1:443").reason == "address"
    assert refused(made, "www.test:443").reason == "address"
    assert resolve(made, "www.test:443") == ["93.184.216.34:443"]


def test_clients_fill_no_memory_with_addresses() -> None:
    made = resolver(Lookup())
    for number in range(3000):
        resolve(made, f"93.184.{number // 256}.{number % 256}:443")
    assert len(made._settled) <= 1024
