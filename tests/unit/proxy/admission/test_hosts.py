"""Which ports and hosts may be asked for at all."""

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.hosts import HostRules


def reason(rules: HostRules, text: str) -> str | None:
    authority = parse_authority(text)
    assert authority is not None
    refusal = rules.refusal(authority)
    return None if refusal is None else refusal.reason


def test_port_443_is_open_and_what_is_added() -> None:
    assert reason(HostRules(), "example.com:443") is None
    assert reason(HostRules(), "example.com:8443") == "port"
    assert reason(HostRules(), "example.com:80") == "port"
    assert reason(HostRules(ports=[8443]), "example.com:8443") is None
    assert reason(HostRules(ports=[8443]), "example.com:443") is None


@pytest.mark.parametrize("rule", ["example.com", "EXAMPLE.com", "example.com.", " example.com "])
@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("example.com", True),
        ("example.com.", True),
        ("Www.Example.com", True),
        ("a.b.c.example.com.", True),
        ("notexample.com", False),
        ("example.com.evil.test", False),
        ("com", False),
        ("example.comm", False),
    ],
)
def test_a_rule_is_for_a_host_and_every_name_below_it(rule: str, host: str, named: bool) -> None:
    assert reason(HostRules(deny=[rule]), f"{host}:443") == ("host" if named else None)
    assert reason(HostRules(allow=[rule]), f"{host}:443") == (None if named else "host")


def test_a_rule_that_denies_wins() -> None:
    rules = HostRules(allow=["example.com", "other.test"], deny=["internal.example.com", "test"])
    assert reason(rules, "www.example.com:443") is None
    assert reason(rules, "x.internal.example.com:443") == "host"
    assert reason(rules, "other.test:443") == "host"


def test_an_address_is_named_by_a_rule_of_its_own() -> None:
    rules = HostRules(deny=["93.184.216.34", "[2606:4700::1]"])
    for host in ("93.184.216.34", "0x5db8d822", "93.184.216.34.", "[2606:4700:0::1]"):
        assert reason(rules, f"{host}:443") == "host"
    assert reason(rules, "93.184.216.35:443") is None
    # What follows a dot of an address is no name above it.
    assert reason(HostRules(deny=["0.0.0.34"]), "93.0.0.34:443") is None
    assert reason(HostRules(allow=["example.com"]), "93.184.216.34:443") == "host"


def test_names_are_compared_in_punycode() -> None:
    assert reason(HostRules(deny=["m\u00fcnchen.de"]), "www.xn--mnchen-3ya.de:443") == "host"


def test_the_log_is_told_which_host() -> None:
    authority = parse_authority("www.example.com:443")
    assert authority is not None
    denied = HostRules(deny=["example.com"]).refusal(authority)
    assert denied is not None
    assert denied.detail == "www.example.com is denied"


@pytest.mark.parametrize("rule", ["", ".example.com", "*.example.com", "*", "example.com:443", "a/b", "::1", "a b"])
def test_what_is_no_rule_is_told(rule: str) -> None:
    with pytest.raises(ConfigurationError, match="no host of a rule"):
        HostRules(deny=[rule])
    with pytest.raises(ConfigurationError, match="no host of a rule"):
        HostRules(allow=[rule])


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port_is_told(port: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{port} is no port"):
        HostRules(ports=[port])
