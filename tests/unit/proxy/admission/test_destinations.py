"""What may be dialled: lifted for networks of the operator's, never for our own listeners."""

from ipaddress import ip_address, ip_network

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission.destinations import AddressRules, parse_network
from headgate.proxy.net.endpoint import Address, Endpoint

PORT = 8443


def none_is_local(address: Address) -> bool:
    return False


def rules(*allowed: str, listeners: tuple[str, ...] = (), local: tuple[str, ...] = ()) -> AddressRules:
    here = {ip_address(each) for each in local}
    return AddressRules(
        map(parse_network, allowed),
        listeners=[(ip_address(each), PORT) for each in listeners],
        is_local_address=here.__contains__,
    )


def forbids(rules: AddressRules, address: str, port: int = PORT) -> str | None:
    return rules.forbids(ip_address(address), port)


def test_the_table_holds_until_it_is_lifted() -> None:
    assert forbids(rules(), "10.1.2.3") == "private (RFC 1918), in 10.0.0.0/8"
    assert forbids(rules("10.0.0.0/8"), "10.1.2.3") is None
    assert forbids(rules("10.0.0.0/8"), "172.16.0.1")
    assert forbids(rules("10.0.0.0/8", "::1"), "::1") is None
    assert forbids(rules(), "93.184.216.34") is None


def test_what_is_lifted_for_an_address_is_not_for_another_that_embeds_it() -> None:
    for address in ("::ffff:10.1.2.3", "::10.1.2.3", "64:ff9b::10.1.2.3", "2002:a01:203::1"):
        assert forbids(rules("10.0.0.0/8"), address), address
    assert forbids(rules("::ffff:10.0.0.0/104"), "::ffff:10.1.2.3") is None


EVERYWHERE = ("0.0.0.0/0", "::/0")
ITSELF = "where the proxy itself listens"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1",
        "64:ff9b:1::127.0.0.1", "0.0.0.0", "::", "::ffff:0.0.0.0",
    ],
)  # fmt: skip
def test_our_own_listener_is_never_dialled_in_any_form(address: str) -> None:
    allowing = rules(*EVERYWHERE, listeners=("127.0.0.1",))
    assert forbids(allowing, address) == ITSELF
    assert forbids(allowing, address, PORT + 1) is None
    assert forbids(allowing, "127.0.0.2") is None


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


def test_what_is_local_is_asked_only_about_the_port_of_a_wildcard() -> None:
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


@pytest.mark.parametrize("text", ["10.0.0.0/8", "127.0.0.1", "::1", " fd00::/8 ", "0.0.0.0/0", "10.0.0.0/255.0.0.0"])
def test_a_network_is_read(text: str) -> None:
    assert parse_network(text) == ip_network(text.strip())


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "10.0.0", "localhost", "127.1", "[::1]", "::1/129"])
def test_what_is_no_network_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_network(text)
    assert str(raised.value).startswith(f"{text!r} is no network")
    assert "\n" not in str(raised.value)


def test_an_endpoint_reads_as_one() -> None:
    assert str(Endpoint(ip_address("127.0.0.1"), 80)) == "127.0.0.1:80"
    assert str(Endpoint(ip_address("::1"), 80)) == "[::1]:80"
