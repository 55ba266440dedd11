"""URLs as sections 3.3 (step 6), 3.3.1 (step 4.2) and 3.3.2 of bundled-exchanges-01 want them parsed and told apart."""

import pytest

from headgate.http.url import has_credentials, has_fragment, is_normal, parse_url, resolve, without_fragment


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "http://example.com/",
        "https://example.com:8443/a/b.html?c=d&e=%20",
        "https://a-b.example.com//a//b/",
        "https://example.com/a%2e/b..?",
        "https://example.com/%D0%BC/x.js",
        "https://example.com/a?/../%2e",
    ],
)
def test_a_url_in_normal_form_is_returned_unchanged(url: str) -> None:
    assert parse_url(url) is url
    assert is_normal(url)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://EXAMPLE.com/A", "https://example.com/A"),
        ("https://example.com:443/", "https://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com/a/../b/./%2E/c", "https://example.com/b/c"),
        ("https://example.com/.well-known/x", "https://example.com/.well-known/x"),
        ("https://example.com/\u00e9 \t\n'", "https://example.com/%C3%A9%20'"),
        ("https://example.com/?'", "https://example.com/?%27"),
        ("https:\\\\example.com\\a", "https://example.com/a"),
        ("  https://example.com/  ", "https://example.com/"),
        ("https://m\u00fcnchen.de/", "https://xn--mnchen-3ya.de/"),
        ("https://1.2.3/", "https://1.2.0.3/"),
        ("https://0x7f.1/", "https://127.0.0.1/"),
        ("urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        ("uuid-in-package:f81d4fae", "uuid-in-package:f81d4fae"),
        ("data:text/plain,hi", "data:text/plain,hi"),
        ("https://example.com/" + "a/" * 50_000, "https://example.com/" + "a/" * 50_000),
    ],
)
def test_a_url_is_normalized_as_by_the_parser(text: str, url: str) -> None:
    assert parse_url(text) == url
    assert parse_url(url) == url


@pytest.mark.parametrize(
    "text",
    [
        *("", "/a", "a", "//example.com/", "https://", "https:///", "?a", "#a", "https://xn--a/", "https://a.1/"),
        *("https://a b/", "https://a:65536/", "https://a:b/", "https://[::1/", "https://\x00/", "https://a/\ud800"),
    ],
)
def test_a_relative_or_invalid_url_is_none(text: str) -> None:
    assert parse_url(text) is None


def test_a_text_of_a_megabyte_does_not_raise() -> None:
    assert parse_url("https://example.com/" + "/." * (1 << 19)) == "https://example.com//"
    assert parse_url("https://" + "a." * (1 << 19)) is not None
    assert parse_url("xn--" * (1 << 18)) is None


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("b?c", "https://example.com/a/b?c"),
        ("../b", "https://example.com/b"),
        ("/b", "https://example.com/b"),
        ("//b", "https://b/"),
        ("", "https://example.com/a/"),
        ("#b", "https://example.com/a/#b"),
        ("https:b", "https://example.com/a/b"),
        ("https://other.example/", "https://other.example/"),
        ("urn:b", "urn:b"),
        ("https://xn--a/", None),
        ("\ud800", None),
    ],
)
def test_a_relative_url_is_resolved_against_the_base(text: str, url: str | None) -> None:
    assert resolve(text, "https://example.com/a/") == url


def test_only_a_fragment_resolves_against_an_opaque_base() -> None:
    assert resolve("#b", "urn:a") == "urn:a#b"
    assert resolve("b", "urn:a") is None


@pytest.mark.parametrize(
    ("text", "fragment", "rest"),
    [
        ("https://a/#b", True, "https://a/"),
        ("https://a/#", True, "https://a/"),
        ("https://a/?b#", True, "https://a/?b"),
        ("urn:a#", True, "urn:a"),
        ("data:,a  #b", True, "data:,a"),
        ("https://a/?#b#c", True, "https://a/?"),
        ("https://a/%23", False, "https://a/%23"),
        ("https://a/", False, "https://a/"),
    ],
)
def test_an_empty_fragment_is_not_null(text: str, fragment: bool, rest: str) -> None:
    """3.3.1 step 4.2: "If parsedUrl is a failure, its fragment is not null, or it includes credentials"."""
    url = parse_url(text)
    assert url is not None
    assert has_fragment(url) is fragment
    assert without_fragment(url) == rest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user@a/", True),
        ("https://:password@a/", True),
        ("foo://user:password@a/b", True),
        ("https://@a/", False),
        ("https://:@a/", False),
        ("https://a/user@b", False),
        ("https://a/?//user@b", False),
        ("mailto:user@a", False),
        ("foo:/a://user@b", False),
        ("https://a/#://u@", False),
    ],
)
def test_credentials_are_a_username_or_a_password(text: str, expected: bool) -> None:
    url = parse_url(text)
    assert url is not None
    assert has_credentials(url) is expected
