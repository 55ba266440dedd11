"""headgate.bundle.url_rules: URLs of new bundles, and the rules of 5.2, strategy 3, for untrusted requests."""

import string

import pytest

from headgate.bundle.url_rules import ALLOWED, SniffingRules, UrlRules
from headgate.bundle.variants import parse_variants
from headgate.errors import ConfigurationError
from headgate.http.url import parse_url

ABSOLUTE = UrlRules(None, relative=False)
RELATIVE = UrlRules(None, relative=True)


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("https://example.com/a", "https://example.com/a"),
        ("HTTPS://Example.COM", "https://example.com/"),
        ("https://example.com:443/a/../é?ü", "https://example.com/%C3%A9?%C3%BC"),
        ("urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    ],
)
def test_urls_are_stored_as_the_parser_writes_them(url, stored):
    for addresses in (ABSOLUTE, RELATIVE):
        assert addresses.stored(url) == stored
        assert addresses.lookup_key(stored) == stored


@pytest.mark.parametrize("url", ["", "a", "/a", "//example.com/", "?x", "https://", "https://a b/", "\ud800"])
def test_relative_urls_are_refused(url):
    """3.3.1 step 4.1: "parsing ([URL]) "url" with no base URL"."""
    with pytest.raises(ConfigurationError, match="is not an absolute URL"):
        ABSOLUTE.stored(url)
    with pytest.raises(ConfigurationError, match="is not an absolute URL"):
        ABSOLUTE.primary(url)


@pytest.mark.parametrize("url", ["https://example.com/#a", "https://example.com/#", "urn:a#b"])
def test_fragments_are_refused_except_in_the_primary_url(url):
    """3.3.1 step 4.2: "If "parsedUrl" is a failure, its fragment is not null, [...] return an error."

    3.3 step 6 asks of the primary URL that it parses, and no more.
    """
    for addresses in (ABSOLUTE, RELATIVE):
        with pytest.raises(ConfigurationError, match="has a fragment"):
            addresses.stored(url)
        assert addresses.primary(url) == url
        assert addresses.lookup_key(url) == url.partition("#")[0]
    with pytest.raises(ConfigurationError, match="has a fragment"):
        UrlRules(SniffingRules(), relative=False).primary(url)


@pytest.mark.parametrize(
    "url", ["https://user@example.com/", "https://:secret@example.com/", "https://u:secret@example.com/#f"]
)
def test_credentials_are_refused_and_never_printed(url):
    """3.3.1 step 4.2: "or it includes credentials, return an error"."""
    for refuse in (ABSOLUTE.stored, ABSOLUTE.primary, RELATIVE.primary):
        with pytest.raises(ConfigurationError, match="has credentials") as refusal:
            refuse(url)
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["a", "../a?b", "/", "", "//example.com/a", "./é"])
def test_relative_urls_are_stored_as_they_are(url):
    assert RELATIVE.stored(url) == url


@pytest.mark.parametrize("url", ["a#b", "#"])
def test_fragments_of_relative_urls_are_refused(url):
    with pytest.raises(ConfigurationError, match="has a fragment"):
        RELATIVE.stored(url)


def test_equivalent_relative_urls_have_one_key():
    assert RELATIVE.lookup_key("a") == RELATIVE.lookup_key("./a") == RELATIVE.lookup_key("b/../a")
    assert RELATIVE.lookup_key("a") != RELATIVE.lookup_key("/a")


def test_invalid_urls_are_refused():
    with pytest.raises(ConfigurationError, match="is not an absolute URL"):
        RELATIVE.stored("http://a b/")


def test_urls_of_untrusted_requests_are_encoded():
    assert (
        UrlRules(SniffingRules(), relative=False).stored("https://example.com/[a]|b")
        == "https://example.com/%5Ba%5D%7Cb"
    )
    assert UrlRules(SniffingRules(), relative=True).stored("<é>") == "%3C%C3%A9%3E"


URL_CODE_POINTS = set(string.ascii_letters + string.digits + "!$&'()*+,-./:;=?@_~")
"""Those below 0x7F; a "%" is none, and begins an encoded byte."""


@pytest.mark.parametrize(
    ("url", "encoded"),
    [
        ("https://example.com/a?b=c", "https://example.com/a?b=c"),
        ("https://example.com/%3Cb%3E", "https://example.com/%3Cb%3E"),
        ("https://example.com/a[]|^b", "https://example.com/a%5B%5D%7C%5Eb"),
        ("https://example.com/?a{}\\`b", "https://example.com/?a%7B%7D%5C%60b"),
        ("https://example.com/100%/%zz/%4", "https://example.com/100%25/%25zz/%254"),
        ("https://[2001:db8::1]/[", "https://[2001:db8::1]/%5B"),
        ('urn:<script>"\0', "urn:%3Cscript%3E%22%00"),
        ("a/é", "a/%C3%A9"),
    ],
)
def test_urls_are_percent_encoded(url, encoded):
    """5.2, 3.1: "percent-encode any bytes that are greater than 0x7E or are not URL code points in these URLs"."""
    assert SniffingRules().url(url) == encoded


@pytest.mark.parametrize("lead", ["https://example.com/", "https://example.com/?", "urn:", "foo://example/", "foo:a?"])
def test_encoded_urls_have_harmless_bytes_only(lead):
    """5.2, 3.1: "make sure no unescaped nulls (0x00) or angle brackets (0x3C and 0x3E) appear"."""
    for number in (*range(0x300), *range(0x301, 0x110000, 997)):
        if number in range(0xD800, 0xE000) or chr(number) == "#":
            continue
        url = parse_url(f"{lead}x{chr(number)}y")
        encoded = SniffingRules().url(url)
        assert set(encoded) <= URL_CODE_POINTS | {"%"}, hex(number)
        assert parse_url(encoded) == encoded


def axes(value):
    found = parse_variants(value)
    assert found is not None
    return found


def test_axes_outside_of_the_list_are_refused():
    """5.2, 3.2: "only include request header field names *and values* that appear in a static allowlist"."""
    SniffingRules().check_axes(axes("Accept-Encoding;gzip;br, accept;image/webp;image/png"))
    for value, named in [
        ("Accept-Language;en", "Accept-Language: en"),
        ("Accept-Encoding;gzip;evil", "Accept-Encoding: evil"),
        ("Accept-Encoding;gzip, X-Evil;gzip", "X-Evil: gzip"),
    ]:
        with pytest.raises(ConfigurationError, match=f"^{named} is not an allowed"):
            SniffingRules().check_axes(axes(value))
    SniffingRules(allowed={"accept-language": ("en",)}).check_axes(axes("Accept-Language;en"))


def test_long_lists_are_refused():
    """5.2, 3.2: "Keep the set of allowed request header fields smaller than 24 elements"."""
    assert sum(map(len, ALLOWED.values())) < 24
    SniffingRules(allowed={"accept-language": ("en",) * 20, "accept-encoding": ("gzip",) * 3})
    with pytest.raises(ConfigurationError, match="24 request header fields are allowed; keep to 23"):
        SniffingRules(allowed={"accept-language": ("en",) * 20, "accept-encoding": ("gzip",) * 4})


def test_twelfth_item_is_refused():
    """5.2, 3.3: "Restrict the number of items a request can direct [...] to less than 12"."""
    SniffingRules().check_count(11)
    with pytest.raises(ConfigurationError, match=r"^12 items"):
        SniffingRules().check_count(12)


SENT = {
    "User-Agent": "evil/1.0 %PDF-1.4",
    "Accept-Encoding": "gzip",
    "Cache-Control": "no-cache",
    "Accept": "*/*",
    "DNT": "1",
    "Host": "example.com",
    "Sec-Fetch-Dest": "image",
    "Origin": "https://evil.example",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-seen", "evil/1.0 %PDF-1.4"),
        ("x-seen", "(evil/1.0 %PDF-1.4)"),
        ("access-control-allow-origin", "https://evil.example"),
    ],
)
def test_reflected_request_headers_are_refused(name, value):
    """5.2, 3.4: "Do not reflect request header fields into the set of response headers." """
    with pytest.raises(ConfigurationError, match=f"the response header {name} holds the request's"):
        SniffingRules(SENT).check_header(name, value)
    SniffingRules().check_header(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-encoding", "gzip"),  # on the list
        ("cache-control", "no-cache"),
        ("age", "1"),  # too short for a signature
        ("x", "*/*"),
        ("location", "https://example.com/"),  # the server's own name
        ("content-type", "image/png"),  # "image" is the browser's, no page can choose it
    ],
)
def test_fixed_headers_are_not_reflections(name, value):
    SniffingRules(SENT).check_header(name, value)
