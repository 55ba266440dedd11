"""URLs as sections 3.3 (step 6), 3.3.1 (step 4.2) and 3.3.2 of bundled-exchanges-01 want them written."""

import pytest

from headgate.bundle.writing.untrusted import SniffingRules
from headgate.bundle.writing.url_rules import UrlRules
from headgate.errors import ConfigurationError

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
def test_a_fragment_is_refused_but_in_the_primary_url(url):
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
def test_a_relative_url_has_no_fragment_either(url):
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
