import importlib.util
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1

from headgate.config.proxy_section import Proxy
from headgate.errors import ConfigurationError, MissingExtra
from headgate.fetch.fetcher import tls_context
from headgate.proxy.admission.authority import parse_authority
from headgate.proxy.dns import SystemLookup
from headgate.runtime import prefetch_proxy_process as module
from headgate.runtime.prefetch_proxy_process import (
    build_host_rules,
    build_resolver,
    check_proxy,
    read_token_keys,
    self_signed,
)
from headgate.token import new_key
from headgate.token.keys import write_keys


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"brand": "\n"}, "proxy.brand: '.n' must be the name of one proxy, such as 'ExampleProxy'"),
        ({"brand": ""}, "proxy.brand: '' must be the name of one proxy"),
        ({"brand": "*"}, r"proxy.brand: '\*' must be the name of one proxy"),
        ({"brand": "prefetch-proxy"}, "proxy.brand: 'prefetch-proxy' must be the name of one proxy"),
        ({"brand": "a\tb"}, "proxy.brand: .*contains a control character"),
        ({"allow_hosts": ("a", "*")}, r"proxy.allow_hosts: invalid host '\*'"),
        ({"deny_hosts": ("a b",)}, "proxy.deny_hosts: invalid host 'a b'"),
        ({"allow_addresses": ("10.1.1.1/8",)}, "proxy.allow_addresses: invalid network '10.1.1.1/8'"),
        ({"resolve": ("a",)}, "proxy.resolve: invalid address 'a'"),
        ({"advice_ca": "none.pem"}, "proxy.advice_ca: 'none.pem'"),
        ({"advice_ca": "empty"}, "proxy.advice_ca: 'empty'"),
        ({"token_keys": ("none.json",)}, "none.json: No such file"),
        ({"token_keys": ("empty",)}, "^empty: "),
    ],
)
def test_error_names_the_invalid_key(folder, wrong, said):
    (folder / "empty").write_bytes(b"")
    with pytest.raises(ConfigurationError, match=said) as caught:
        check_proxy(Proxy(**wrong))
    assert "\n" not in str(caught.value)


def test_host_rules():
    hosts = build_host_rules(Proxy(allow_hosts=("example.org",), deny_hosts=("b.example.org",), allow_ports=(8443,)))
    for text, allowed in (
        ("example.org:443", True), ("a.example.org:8443", True), ("b.example.org:443", False), ("c.org:443", False),
        ("example.org:80", False),
    ):  # fmt: skip
        assert (hosts.refusal(parse_authority(text)) is None) == allowed


def test_own_listeners_are_never_connected_to():
    settings = Proxy(allow_addresses=("127.0.0.0/8", "::1"), resolve=("a=127.0.0.1",))
    resolver = build_resolver(settings, SystemLookup(), [("127.0.0.1", 8443), ("fe80::1%lo", 1), ("::", 9)])
    rules = resolver._rules
    assert rules.forbids(ip_address("127.0.0.1"), 8443)
    assert rules.forbids(ip_address("127.0.0.1"), 9)
    assert rules.forbids(ip_address("127.0.0.1"), 8444) is None


def test_advice_ca_replaces_the_usual_authorities(folder):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = tls_context("proxy.advice_ca", "ca.pem")
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    assert tls_context("proxy.advice_ca", "") is not context


def test_contradicting_key_files_are_refused(folder):
    for name, most in (("a", 60), ("b", 120)):
        key = new_key(entropy=bytes, max_ttl=most)
        (folder / name).write_bytes(write_keys([key]))
    with pytest.raises(ConfigurationError, match="one key is listed twice"):
        read_token_keys(Proxy(token_keys=("a", "b")))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("0.0.0.0", "0.0.0.0"),
        ("2001:db8::1", "2001:db8::1"),
        ("proxy.example.org", "proxy.example.org"),
        ("münchen.example", "xn--mnchen-3ya.example"),
        ("localhost", "localhost"),
    ],
)
def test_certificate_has_local_names_and_one_more_and_is_deleted(host, name):
    with self_signed(host) as (cert, key):
        assert Path(key).stat().st_mode & 0o777 == 0o600
        assert Path(key).parent.stat().st_mode & 0o777 == 0o700
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        made = x509.load_pem_x509_certificate(Path(cert).read_bytes())
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert isinstance(made.public_key().curve, SECP256R1)
    found = [str(one.value) for one in names]
    assert name in found
    assert {"localhost", "127.0.0.1", "::1"} <= set(found)
    assert len(found) == len(set(found))
    assert not Path(key).parent.exists()


def test_without_cryptography_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "cryptography" else importlib.util.find_spec)
    with pytest.raises(MissingExtra, match="the extra 'sign'"), self_signed("a"):
        pass
