"""The tables `[[origin]]`: URLs, and keys that do not go together."""

import pytest

from headgate.config.file import parse
from headgate.config.origin_section import OriginUrl
from headgate.config.validation import log_warnings
from headgate.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "parts", "name"),
    [
        ("http://127.0.0.1:8000", ("http", "127.0.0.1", 8000, "", ""), "127.0.0.1:8000"),
        ("http://[::1]:81/", ("http", "::1", 81, "", ""), "[::1]:81"),
        ("https://app.example/a/b/", ("https", "app.example", 443, "/a/b", ""), "app.example:443/a/b"),
        ("http://Bücher.example", ("http", "xn--bcher-kva.example", 80, "", ""), "xn--bcher-kva.example:80"),
        ("unix:/run/app.sock", ("unix", "localhost", 0, "", "/run/app.sock"), "unix:/run/app.sock"),
        ("unix:app.sock:/a", ("unix", "localhost", 0, "/a", "app.sock"), "unix:app.sock:/a"),
    ],
)
def test_a_url_names_where_the_origin_is(url: str, parts: tuple[object, ...], name: str) -> None:
    assert OriginUrl.parse(url) == parts
    assert OriginUrl.parse(url).name == name


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("app:80", "the scheme is missing; expected 'http://app:80'"),
        ("127.0.0.1:8000/x", "the scheme is missing"),
        *((url, "expected a URL such as") for url in (
            "", "ftp://a", "http://", "http://a?q", "http://u@a", "http://a:x", "http://a:0", "http://a..b", "http://a#b",
            "http://:password@a", "http://a?", "http://a\tb", "http://a\n", "http://a b", "HTTPS://a",
        )),
        ("http://a/b/../c", "invalid path"),
        ("https://a/ü", "invalid path"),
        ("unix:", "invalid path ''"),
        ("unix:" + "x" * 200, "path too long"),
        ("unix:/a:/b/..", "invalid path"),
    ],
)  # fmt: skip
def test_an_invalid_url_is_an_error_that_says_what_is_expected(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        OriginUrl.parse(url)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('url = "http://a"\nca = "f"', r"origin\[0\].ca: only for an https origin, got 'http://a'"),
        ('url = "http://a"\nverify = false', r"origin\[0\].verify: only for an https origin"),
        ('url = "https://a"\nverify = false\nca = "f"', r"origin\[0\].verify: false checks nothing, but `ca`"),
        ('url = "https://a"\ncert = "f"', r"origin\[0\]: a certificate needs its key"),
        ('url = "http://a"\nhost = "a b"', r"origin\[0\].host: invalid host 'a b'; expected pass, or a name"),
        ('url = "http://a"\nhealth = "healthz"', r"origin\[0\].health: invalid path 'healthz'; expected one such as"),
        ('url = "http://a"\nhealth = "/ x"', r"origin\[0\].health: invalid path"),
        ('url = "http://a"\nweight = 0', r"origin\[0\].weight: .*got 0"),
        ('url = "http://a"\n[[origin]]\nurl = "http://a:80/"', r"origin\[1\].url: 'http://a:80/' is listed twice"),
        ('url = "http://a"\n[gate]\norigin = "http://b"', r"gate.origin: 'http://b' is set beside \[\[origin\]\]"),
        ('weight = 1', r"origin\[0\]: the key 'url' is missing"),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together_are_an_error(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse(f"[[origin]]\n{text}")


def test_the_short_form_lists_urls_and_a_certificate_that_is_not_checked_is_a_warning() -> None:
    assert parse("").origins == ()
    assert [one.url for one in parse('[gate]\norigin = "http://a"').origins] == ["http://a"]
    assert [one.url for one in parse('[gate]\norigin = ["http://a", "unix:/b"]').origins] == ["http://a", "unix:/b"]
    lines: list[str] = []
    log_warnings(parse('[[origin]]\nurl = "https://a"\nverify = false\n[[origin]]\nurl = "https://b"'), lines.append)
    assert lines == ["warning: the certificate of origin https://a is not checked (verify = false); use `ca` instead"]
