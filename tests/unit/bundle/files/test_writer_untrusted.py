"""Checked mode: section 5.2, strategy 3, of bundled-exchanges-01, over a whole bundle."""

import io

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.url_rules import SniffingRules
from headgate.errors import ConfigurationError

PAGE = "https://example.com/"
TEXT = {"content-type": "text/plain"}


def strangers(*exchanges, manifest_url=None, primary_url=PAGE, **rules):
    """Write exchanges, each a URL and the arguments of `add`, in checked mode; the first is the default manifest."""
    target = io.BytesIO()
    options = {"version": "b1", "primary_url": primary_url, "manifest_url": manifest_url or exchanges[0][0]}
    with BundleWriter(target, **options, untrusted=SniffingRules(**rules) if rules else True) as writer:
        for url, more in exchanges:
            writer.add(url, **more)
    return target.getvalue()


def test_untrusted_urls_are_encoded():
    """5.2, strategy 3.1."""
    bundle = strangers(
        ("https://example.com/<b>|é", {"headers": TEXT}),
        primary_url="https://example.com/?[<%PDF>]",
        manifest_url="https://example.com/<b>|é",
    )
    with open_bundle(bundle) as opened:
        assert opened.metadata.primary_url == "https://example.com/?%5B%3C%PDF%3E%5D".replace("%PDF", "%25PDF")
        assert opened.metadata.manifest_url == "https://example.com/%3Cb%3E%7C%C3%A9"
        assert list(opened.metadata.requests) == ["https://example.com/%3Cb%3E%7C%C3%A9"]
    assert not set(b"<>|[]") & set(bundle.partition(b"text/plain")[0])


def test_untrusted_requests_add_fewer_than_twelve_items():
    """5.2, strategy 3.3."""
    eleven = [(f"{PAGE}{number}", {}) for number in range(11)]
    fixed = [(f"{PAGE}fixed/{number}", {"dynamic": False}) for number in range(50)]
    strangers(*eleven)
    strangers(*fixed, *eleven)
    strangers(*eleven, *fixed)
    with pytest.raises(ConfigurationError, match="12 items"):
        strangers(*eleven, (PAGE, {}))
    shared = {"variants": "Accept-Encoding;gzip;br", "variant_key": ["gzip", "br"]}
    with pytest.raises(ConfigurationError, match="12 items"):
        strangers(*eleven[:10], (PAGE, shared))


def test_untrusted_requests_use_allowed_headers_only():
    """5.2, strategy 3.2."""
    with pytest.raises(ConfigurationError, match="Accept-Language: en is not an allowed"):
        strangers((PAGE, {"variants": "Accept-Language;en", "variant_key": "en"}))
    exchange = (PAGE, {"variants": "Accept-Language;en", "variant_key": "en"})
    strangers(exchange, allowed={"accept-language": ("en",)})


def test_request_headers_are_not_reflected():
    """5.2, strategy 3.4."""
    asked = {"Referer": "https://evil.example/%PDF"}
    with pytest.raises(ConfigurationError, match=f"^{PAGE}: the response header link holds the request's referer"):
        strangers((PAGE, {"headers": {"Link": "<https://evil.example/%PDF>"}}), request_headers=asked)
    strangers((PAGE, {"headers": {"Link": "<https://example.com/>"}}), request_headers=asked)


def test_without_the_mode_nothing_is_encoded_or_counted():
    target = io.BytesIO()
    with BundleWriter(target) as writer:
        for number in range(12):
            writer.add(f"{PAGE}[{number}]")
    with open_bundle(target.getvalue()) as bundle:
        assert f"{PAGE}[11]" in bundle.metadata.requests
