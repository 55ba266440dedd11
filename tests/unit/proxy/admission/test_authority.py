"""Targets of CONNECT requests, and the rules for hosts and ports."""

import re

import pytest

from headgate.errors import ConfigurationError
from headgate.http.url import serialised_origin
from headgate.proxy.admission.authority import Authority, HostRules, parse_authority


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.com:443", "example.com", 443),
        ("WWW.Example.COM:8443", "www.example.com", 8443),
        ("example.com.:443", "example.com.", 443),
        ("localhost:1", "localhost", 1),
        ("a_b.example:65535", "a_b.example", 65535),
        ("a1:443", "a1", 443),
        ("x.1a:443", "x.1a", 443),
        ("example.com:00443", "example.com", 443),
        # IDNA, as the parser does it: mapped, not transitional.
        ("m\u00fcnchen.de:443", "xn--mnchen-3ya.de", 443),
        ("xn--mnchen-3ya.de:443", "xn--mnchen-3ya.de", 443),
        ("stra\u00dfe.de:443", "xn--strae-oqa.de", 443),
        ("a\u3002example:443", "a.example", 443),
        ("%65xample.com:443", "example.com", 443),
    ],
)
def test_names_are_serialised(text: str, host: str, port: int) -> None:
    authority = parse_authority(text)
    assert authority == Authority.of(host, port)
    assert authority.address is None
    assert authority is not None
    # A dot at the end makes another origin to the WHATWG, and none to us: the same server, and no second draw.
    assert authority.origin == serialised_origin(f"https://{host.rstrip('.')}:{port}")
    assert authority.name == host.rstrip(".")
    assert str(authority) == f"{host}:{port}"
    assert parse_authority(str(authority)) == authority


MALFORMED = [
    "", ":", ":443", "example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:000443",
    "example.com:-1", "example.com:+443", "example.com:4 43", "example.com:443 ", " example.com:443",
    "example.com:443\n", "exa\tmple.com:443", "exa mple.com:443", "example.com :443", "\x00:443", "a\x7fb:443",
    "a\u00a0b:443", "a\u2028b:443", "example.com:\uff14\uff14\uff13", "example.com:443:443",
    "127.0.0.1", "::1", "::1:443",
    "[::1]", "[::1]:", "[::1", "::1]:443", "[]:443", "[:443", "[::1]x:443", "x[::1]:443", "[[::1]]:443",
    "[127.0.0.1]:443", "[::1%lo]:443", "[fe80::1%25lo]:443", "[v1.a]:443", "[::1:443",
    "user@example.com:443", "user:pass@example.com:443", "@example.com:443", "example.com@:443",
    "example.com/:443", "example.com/path:443", "example.com:443/", "\\example.com:443", "example.com\\:443",
    "example.com?x:443", "example.com#x:443", "https://example.com:443", "//example.com:443",
    "a..b:443", ".:443", ".example.com:443", "example.com..:443", "%2e:443", "a%2e.b:443",
    "1.2.3.4.5:443", "256.0.0.1:443", "1.2.3.a.5:443", "0x100000000:443", "08.0.0.1:443", "a%00b:443",
    "a%2fb:443", "a%40b:443", "%:443", "a%zz:443", "xn--a:443", "\u00ad:443", "\ud800:443", "a<b:443",
    f"{'a' * 64}.example:443", f"{'a.' * 128}:443", f"{'a' * 2000}:443", f"{chr(0xAD) * 2000}a:443",
]  # fmt: skip


def test_malformed_authorities() -> None:
    for text in MALFORMED:
        assert parse_authority(text) is None, text


def test_the_longest_name_is_accepted() -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(longest) == 253
    assert parse_authority(f"{longest}:443") == Authority.of(longest, 443)
    assert parse_authority(f"{longest}.:443") == Authority.of(f"{longest}.", 443)
    assert parse_authority(f"{longest}b:443") is None


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


def test_invalid_hosts_and_ports_are_errors() -> None:
    for rule in ("", ".example.com", "*.example.com", "*", "example.com:443", "a/b", "::1", "a b"):
        for kind in ("deny", "allow"):
            with pytest.raises(ConfigurationError, match=re.escape(f"invalid host {rule!r}")):
                HostRules(**{kind: [rule]})
    for port in (0, -1, 65536):
        with pytest.raises(ConfigurationError, match=f"invalid port {port}"):
            HostRules(ports=[port])
