"""Rules for hosts and ports."""

import re

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.admission.hosts import HostRules


def reason(rules: HostRules, text: str) -> str | None:
    authority = parse_authority(text)
    assert authority is not None
    refusal = rules.refusal(authority)
    return None if refusal is None else refusal.reason


def test_port_443_is_allowed_and_configured_ones() -> None:
    assert reason(HostRules(), "example.com:443") is None
    assert reason(HostRules(), "example.com:8443") == "port"
    assert reason(HostRules(), "example.com:80") == "port"
    assert reason(HostRules(ports=[8443]), "example.com:8443") is None
    assert reason(HostRules(ports=[8443]), "example.com:443") is None


HOSTS = {
    "example.com": True, "example.com.": True, "Www.Example.com": True, "a.b.c.example.com.": True,
    "notexample.com": False, "example.com.evil.test": False, "com": False, "example.comm": False,
}  # fmt: skip


def test_a_rule_includes_subdomains() -> None:
    for rule in ("example.com", "EXAMPLE.com", "example.com.", " example.com "):
        for host, matches in HOSTS.items():
            assert reason(HostRules(deny=[rule]), f"{host}:443") == ("host" if matches else None), (rule, host)
            assert reason(HostRules(allow=[rule]), f"{host}:443") == (None if matches else "host"), (rule, host)


def test_deny_overrides_allow() -> None:
    rules = HostRules(allow=["example.com", "other.test"], deny=["internal.example.com", "test"])
    assert reason(rules, "www.example.com:443") is None
    assert reason(rules, "x.internal.example.com:443") == "host"
    assert reason(rules, "other.test:443") == "host"


def test_addresses_match_whole_rules_only() -> None:
    rules = HostRules(deny=["93.184.216.34", "[2606:4700::1]"])
    for host in ("93.184.216.34", "0x5db8d822", "93.184.216.34.", "[2606:4700:0::1]"):
        assert reason(rules, f"{host}:443") == "host"
    assert reason(rules, "93.184.216.35:443") is None
    # Part of an address is not its parent domain.
    assert reason(HostRules(deny=["0.0.0.34"]), "93.0.0.34:443") is None
    assert reason(HostRules(allow=["example.com"]), "93.184.216.34:443") == "host"


def test_names_are_compared_in_punycode() -> None:
    assert reason(HostRules(deny=["m\u00fcnchen.de"]), "www.xn--mnchen-3ya.de:443") == "host"


def test_the_detail_names_the_host() -> None:
    authority = parse_authority("www.example.com:443")
    assert authority is not None
    denied = HostRules(deny=["example.com"]).refusal(authority)
    assert denied is not None
    assert denied.detail == "www.example.com is denied"


def test_invalid_hosts_and_ports_are_errors() -> None:
    for rule in ("", ".example.com", "*.example.com", "*", "example.com:443", "a/b", "::1", "a b"):
        for kind in ("deny", "allow"):
            with pytest.raises(ConfigurationError, match=re.escape(f"invalid host {rule!r}")):
                HostRules(**{kind: [rule]})
    for port in (0, -1, 65536):
        with pytest.raises(ConfigurationError, match=f"invalid port {port}"):
            HostRules(ports=[port])
