"""The configuration of Envoy. Whether Envoy accepts it is the matter of an end-to-end test."""

import base64
import json
import re

import pytest

from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.envoy_conf import configuration
from tests.unit.origin.sidecar.sites import site


def test_all_addresses_are_written() -> None:
    text = configuration(site(listen=Address("::1", 8080), rlqs=Address("192.0.2.7", 10_106)))
    assert 'socket_address: { address: "::1", port_value: 8080 }' in text
    assert 'socket_address: { address: "127.0.0.1", port_value: 8000 }' in text
    assert 'socket_address: { address: "192.0.2.7", port_value: 10106 }' in text
    assert "headgate master --rlqs 192.0.2.7:10106 " in text


def test_names_are_looked_up_in_both_families() -> None:
    text = configuration(site(origin="http://origin.example"))
    assert text.count("type: LOGICAL_DNS\n    dns_lookup_family: ALL") == 1
    assert text.count("type: STATIC") == 1
    assert 'address: "origin.example", port_value: 80' in text


def test_a_listener_with_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--listen: .*'localhost'; expected an address, such as"):
        configuration(site(listen=Address("localhost", 8080)))


@pytest.mark.parametrize(
    "name", ["api", 'a"b', "a\\b", "a: b # c", "a%b", "${listen}", "$domain", "é😀", "'", "- x", "{"]
)
def test_the_domain_stays_one_string(name: str) -> None:
    text = configuration(site(domain=name))
    (domain,) = re.findall(r"^ +domain: (.+)$", text, re.MULTILINE)
    assert json.loads(domain) == name
    (body,) = re.findall(r"http_body: \{ value: (.+) \}", text)
    problem = json.loads(base64.b64decode(json.loads(body)))
    assert problem["violated-policies"] == [name]
    assert text.count("\n") == configuration(site()).count("\n")


def test_clients_are_addresses_unless_a_header_is_named() -> None:
    assert "HttpRequestHeaderMatchInput" not in configuration(site())
    assert "HttpRequestHeaderMatchInput" not in configuration(site(identify="client-address"))
    assert 'header_name: "x-api-key"' in configuration(site(identify="header:X-Api-Key"))
    assert "  header: { custom_value:" in configuration(site(identify="header:X-Api-Key"))
    assert "  authorization: { custom_value:" in configuration(site(identify="header:Authorization"))


def test_a_value_of_the_header_with_a_comma_or_another_character_than_ascii_does_not_identify() -> None:
    (pattern,) = re.findall(r"regex: '(.+)'", configuration(site(identify="header:x")))
    for value in b"key", b"x" * 255, b"a b;c\"d'":
        assert re.fullmatch(pattern.encode(), value), value
    for value in b"", b"x" * 256, b"key,other", b"\xff", "é".encode():
        assert not re.fullmatch(pattern.encode(), value), value


def test_no_token_bucket_is_a_fallback() -> None:
    settings = [line for line in configuration(site()).splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in settings if "token_bucket" in line or "no_assignment" in line]


def test_the_marks_enclose_both_filters_and_the_cluster_of_the_service() -> None:
    text = configuration(site(identify="header:x"))
    blocks = re.findall(r"# headgate: begin(.+?)# headgate: end", text, re.DOTALL)
    assert ["set_filter_state" in block for block in blocks] == [True, False, False]
    assert ["rate_limit_quota" in block for block in blocks] == [False, True, False]
    assert ["- name: headgate\n" in block for block in blocks] == [False, False, True]
    assert not [block for block in blocks if "name: origin" in block]
