"""Laws of destinations: no forbidden address is connected to, in any form and from any source."""

import asyncio
import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from hypothesis import assume, example, given
from hypothesis import strategies as st

from headgate.fetch.destinations import GLOBAL_UNICAST, SPECIAL, Address, AddressRules, Network, special_purpose
from headgate.http.url import serialised_origin
from headgate.proxy.admission.authority import HostRules, parse_authority
from headgate.proxy.admission.destinations import Overrides, Resolver
from headgate.proxy.refusal import Refusal
from headgate.proxy.sockets import Endpoint

PORT = 8443


def within(network: Network) -> st.SearchStrategy[Address]:
    """Addresses of a network, its ends above all."""
    first, last = int(network[0]), int(network[-1])
    kind = IPv4Address if network.version == 4 else IPv6Address
    return (st.sampled_from([first, last]) | st.integers(first, last)).map(kind)


outside_of_unicast = st.integers(0, (1 << 128) - 1).map(IPv6Address).filter(lambda each: each not in GLOBAL_UNICAST)
forbidden = st.sampled_from([network for network, _ in SPECIAL]).flatmap(within) | outside_of_unicast
addresses = (
    forbidden | st.integers(0, (1 << 32) - 1).map(IPv4Address) | within(GLOBAL_UNICAST)
    | st.sampled_from(["93.184.216.34", "8.8.8.8", "2606:4700::1111"]).map(ip_address)
)  # fmt: skip


@st.composite
def written_ipv4(draw: st.DrawFn, address: IPv4Address) -> str:
    """An IPv4 address in one to four parts, each decimal, octal or hexadecimal, with some disguise."""
    count = draw(st.integers(1, 4))
    octets = list(address.packed)
    parts = [*octets[: count - 1], int.from_bytes(bytes(octets[count - 1 :]), "big")]
    forms = st.sampled_from(["{:d}", "0{:o}", "0x{:x}", "0X{:X}", "0x00{:x}", "000{:o}"])
    text = ".".join(draw(forms).format(part) for part in parts) + draw(st.sampled_from(["", "."]))
    disguise = draw(st.sampled_from(["none", "percent", "wide", "dots"]))
    if disguise == "percent":
        return "".join(draw(st.sampled_from([each, f"%{ord(each):02x}"])) for each in text)
    if disguise == "wide":
        return "".join(chr(ord(each) + 0xFEE0) for each in text)
    return text.replace(".", "\u3002") if disguise == "dots" else text


@st.composite
def written_ipv6(draw: st.DrawFn, address: IPv6Address) -> str:
    """An IPv6 address, whole or short, its end in either notation."""
    plain = IPv6Address(int(address))
    text = draw(st.sampled_from([plain.compressed, plain.exploded, plain.compressed.upper()]))
    if draw(st.booleans()):
        head = plain.exploded.rsplit(":", 2)[0]
        text = f"{head}:{IPv4Address(int(plain) & 0xFFFF_FFFF)}"
    return f"[{text}]"


def written(address: Address) -> st.SearchStrategy[str]:
    return written_ipv4(address) if isinstance(address, IPv4Address) else written_ipv6(address)


def resolve(
    text: str, answers: Sequence[Address] = (), *, rules: AddressRules | None = None, overrides: Sequence[str] = ()
) -> tuple[Endpoint, ...] | str:
    """Return the endpoints for the target of a CONNECT, or the reason of its refusal."""

    async def lookup(host: str, _client: bytes) -> Sequence[Address]:
        return answers

    authority = parse_authority(text)
    if authority is None:
        return "malformed"
    refusal = HostRules(ports=[authority.port]).refusal(authority)
    assert refusal is None
    rules = rules or AddressRules(is_local_address=lambda address: False)
    try:
        return asyncio.run(Resolver(rules, lookup, overrides=Overrides(overrides)).resolve(authority, b"client"))
    except Refusal as raised:
        return raised.reason


@given(addresses, st.data())
def test_every_form_is_the_same_address(address: Address, drawn: st.DataObject) -> None:
    texts = {f"{drawn.draw(written(address))}:{PORT}" for _ in range(3)}
    assert {getattr(parse_authority(text), "address", None) for text in texts} == {address}
    expected = "address" if special_purpose(address) else (Endpoint(address, PORT),)
    assert {resolve(text) for text in texts} == {expected}


@given(st.lists(addresses, min_size=1, max_size=5))
def test_every_address_of_a_name_is_checked(answers: list[Address]) -> None:
    found = resolve(f"www.example.org:{PORT}", answers)
    if any(special_purpose(address) for address in answers):
        assert found == "address"
    else:
        assert found == tuple(Endpoint(address, PORT) for address in answers)


@given(addresses, addresses, st.integers(0, 32))
def test_only_the_allowed_network_is_allowed(address: Address, base: Address, bits: int) -> None:
    network = (
        ip_network((int(base), bits), strict=False) if base.version == 4 else IPv6Network((base, bits), strict=False)
    )
    rules = AddressRules([network], is_local_address=lambda _: False)
    assert rules.forbids(address, PORT) == (None if address in network else special_purpose(address))


EMBEDDING = ["::", "::ffff:0:0", "::ffff:0:0:0", "64:ff9b::", "64:ff9b:1::"]


@given(addresses, st.sampled_from([None, *EMBEDDING]), st.booleans(), st.data())
def test_own_listeners_are_always_forbidden(
    own: Address, prefix: str | None, wildcard: bool, drawn: st.DataObject
) -> None:
    destination = own
    if prefix is not None:
        assume(own.version == 4)
        destination = IPv6Address(int(IPv6Address(prefix)) + int(own))
    listener = IPv6Address(0) if wildcard else own
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    rules = AddressRules(everything, listeners=[(listener, PORT)], is_local_address=lambda address: address == own)
    text = drawn.draw(written(destination))
    assert resolve(f"{text}:{PORT}", rules=rules) == "address"
    assert resolve(f"www.example.org:{PORT}", [destination], rules=rules) == "address"
    assert resolve("www.example.org:1", overrides=[f"*={Endpoint(destination, PORT)}"], rules=rules) == "address"
    assert resolve(f"{text}:{PORT + 1}", rules=rules) == (Endpoint(destination, PORT + 1),)


PIECES = st.sampled_from([
    "a", "example", "com", "WWW", "127", "1", "0x7f", ".", "..", ":", "443", "[", "]", "::1", "@", "/", "\\", "?", "#",
    " ", "\t", "\n", "\x00", "%", "%2e", "%40", "%3a", "\u00ad", "\uff11", "\u3002", "\u00e9", "\ud800", "xn--", "*",
])  # fmt: skip


@given((st.lists(PIECES, max_size=8).map("".join) | st.text()), st.sampled_from(["", ":443", ":8443", ":0"]))
@example("a%2e", ":443")
@example("a.", ":8443")
def test_any_text_is_an_authority_or_malformed(text: str, port: str) -> None:
    authority = parse_authority(text + port)
    if authority is None:
        return
    assert str(authority).isascii()
    assert parse_authority(str(authority)) == authority
    # No part of it but a host and a port has got in. To the WHATWG a dot at the end makes another origin, to us none.
    origin = serialised_origin(f"https://{text}{port}/")
    assert origin is not None
    assert authority.origin == re.sub(r"\.(?=(:[0-9]+)?$)", "", origin)
    assert not set(authority.host) & set(" \t\r\n\x00/\\?#@%")
    if authority.address is not None:
        assert ip_address(authority.name) == authority.address
