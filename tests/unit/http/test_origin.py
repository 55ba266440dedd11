"""Origins as the URL, HTML and Secure Contexts standards have them."""

import pytest

from headgate.http.origin import host_of, is_localhost, is_potentially_trustworthy, serialised_origin


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://example.com", "https://example.com"),
        ("HTTPS://u:p@Example.COM:443/a?b#c", "https://example.com"),
        ("https://example.com:8443/", "https://example.com:8443"),
        ("http://example.com:443", "http://example.com:443"),
        ("http://127.1:8000/x", "http://127.0.0.1:8000"),
        ("http://0x7f.1", "http://127.0.0.1"),
        ("http://2130706433", "http://127.0.0.1"),
        ("http://[0:0::1]:80", "http://[::1]"),
        ("https://m\u00fcnchen.de", "https://xn--mnchen-3ya.de"),
        ("https:\\\\a\\b", "https://a"),
        ("wss://a/", "wss://a"),
        ("ftp://a/", "ftp://a"),
        ("blob:https://a.example/5ee5", "https://a.example"),
        ("file:///etc/hosts", None),
        ("data:text/plain,a", None),
        ("urn:a", None),
        ("null", None),
        ("", None),
        ("example.com", None),
        ("https://", None),
        ("https://a b/", None),
        ("https://a:99999", None),
        ("https://\ud800", None),
    ],
)
def test_an_origin_is_normalized_by_the_parser(url: str, origin: str | None) -> None:
    assert serialised_origin(url) == origin
    if origin is not None:
        assert serialised_origin(origin) == origin


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com", True),
        ("https://203.0.113.1:8443", True),
        ("wss://example.com", True),
        ("http://127.0.0.1", True),
        ("http://127.255.255.255:81", True),
        ("http://127.1", True),
        ("http://0x7f.1", True),
        ("http://127.0.0.1.", True),
        ("http://[::1]:8000", True),
        ("http://localhost", True),
        ("http://LOCALHOST:8000", True),
        ("http://localhost.", True),
        ("http://a.b.localhost", True),
        ("http://a.localhost.", True),
        ("http://example.com", False),
        ("http://126.0.0.1", False),
        ("http://128.0.0.1", False),
        ("http://127.example", False),
        ("http://127.0.0.1.example", False),
        ("http://[::2]", False),
        ("http://[::]", False),
        ("http://[::ffff:127.0.0.1]", False),
        ("http://0.0.0.0", False),
        ("http://notlocalhost", False),
        ("http://localhost.example", False),
        ("http://localhost..", False),
        ("ftp://example.com", False),
        ("ftp://localhost", True),
    ],
)
def test_origins_protected_against_changes_are_trustworthy(url: str, expected: bool) -> None:
    origin = serialised_origin(url)
    assert origin is not None
    assert is_potentially_trustworthy(origin) is expected


def test_an_invalid_origin_is_not_trustworthy() -> None:
    assert not is_potentially_trustworthy("null")
    assert not is_potentially_trustworthy("")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://www.example.com/", "www.example.com"),
        ("https://WWW.example.com:8443/a:b", "www.example.com"),
        ("http://[::1]:8080/", "[::1]"),
        ("http://[2001:db8::1]/", "[2001:db8::1]"),
        ("http://0x7f.1:1/", "127.0.0.1"),
        ("ws://a:81", "a"),
    ],
)
def test_the_host_of_an_origin_has_neither_scheme_nor_port(url: str, host: str) -> None:
    origin = serialised_origin(url)
    assert origin is not None
    assert host_of(origin) == host
    assert is_localhost(host) is (host in {"[::1]", "127.0.0.1"})
