"""headgate.bundle: the names that it exports, and headgate.bundle.api."""

import importlib
import subprocess
import sys

import pytest

import headgate.bundle
from headgate.bundle import Exchange, NotInBundle, create_bundle, open_bundle, read_stream
from headgate.errors import ConfigurationError

PAGE = "https://example.com/"
STYLE = "https://example.com/style.css"
HTML = {"Content-Type": "text/html; charset=utf-8", "ETag": '"1"'}
EXCHANGES = [
    Exchange(PAGE, headers=HTML, payload="<p>caf\xe9"),
    Exchange(STYLE, headers={"content-type": "text/css"}, payload=b"p {}"),
]


class TestNames:
    def test_every_exported_name_can_be_imported(self):
        for package in (
            "headgate.bundle",
            "headgate.bundle.sources",
            "headgate.bundle.signing",
            "headgate.bundle.lint",
        ):
            module = importlib.import_module(package)
            for name in module.__all__:
                assert getattr(module, name) is not None, (package, name)

    def test_an_unknown_name_is_an_attribute_error(self):
        with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
            _ = headgate.bundle.Unknown

    def test_importing_the_package_imports_no_parser(self):
        code = "import headgate.bundle, sys; print(any(name.startswith('headgate.bundle.') for name in sys.modules))"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


class TestCreateBundle:
    def test_bundle_has_the_exchanges(self):
        content = create_bundle(EXCHANGES, primary_url=PAGE)
        with open_bundle(content) as bundle:
            assert (bundle.version, bundle.primary_url, bundle.manifest_url) == ("b2", PAGE, None)
            assert bundle.urls == tuple(bundle) == (PAGE, STYLE)
            assert (len(bundle), bool(bundle)) == (2, True)

    def test_same_exchanges_give_the_same_bytes(self):
        assert create_bundle(EXCHANGES) == create_bundle(EXCHANGES)

    def test_b1_needs_a_primary_url_and_a_manifest(self):
        with pytest.raises(ConfigurationError, match="needs a primary URL"):
            create_bundle(EXCHANGES, version="b1")
        content = create_bundle(EXCHANGES, version="b1", primary_url=PAGE, manifest_url=STYLE)
        with open_bundle(content) as bundle:
            assert (bundle.version, bundle.manifest_url) == ("b1", STYLE)

    def test_bundle_without_exchanges_is_empty_and_true(self):
        with open_bundle(create_bundle([])) as bundle:
            assert (len(bundle), bool(bundle), bundle.urls) == (0, True, ())


class TestBundle:
    def test_contains_accepts_any_form_of_a_url(self):
        bundle = open_bundle(create_bundle(EXCHANGES))
        for url in (PAGE, "https://example.com", "HTTPS://example.com:443/", f"{PAGE}#top"):
            assert url in bundle, url
        for url in ("https://example.com/other", "style.css", "", 7, None):
            assert url not in bundle, url

    def test_an_unknown_url_raises(self):
        with pytest.raises(NotInBundle, match="/other is not in the bundle"):
            open_bundle(create_bundle(EXCHANGES)).response("https://example.com/other")


class TestResponse:
    def test_headers_are_found_in_any_case(self):
        headers = open_bundle(create_bundle(EXCHANGES)).response(PAGE).headers
        assert headers["Content-Type"] == headers["content-type"] == headers.get("CONTENT-TYPE") == HTML["Content-Type"]
        assert "ETag" in headers
        assert headers.get("Age") is None
        assert headers == {"content-type": HTML["Content-Type"], "etag": '"1"', "x-content-type-options": "nosniff"}
        with pytest.raises(KeyError):
            _ = headers["Age"]

    def test_body_is_bytes(self):
        body = open_bundle(create_bundle(EXCHANGES)).response(PAGE).body
        assert isinstance(body, bytes)
        assert body == "<p>caf\xe9".encode()

    def test_text_is_decoded_by_its_charset(self):
        rows = [
            ("text/plain", b"caf\xc3\xa9", "caf\xe9"),
            ("text/plain; charset=utf-8", b"caf\xc3\xa9", "caf\xe9"),
            ('text/plain;charset="ISO-8859-1"', b"caf\xe9", "caf\xe9"),
            ("text/plain; charset=unknown", b"caf\xc3\xa9", "caf\xe9"),
            ("text/plain", b"caf\xe9", "caf\ufffd"),
        ]
        for content_type, payload, text in rows:
            content = create_bundle([Exchange(PAGE, headers={"content-type": content_type}, payload=payload)])
            assert open_bundle(content).response(PAGE).text == text, content_type


def test_streams_and_open_bundles_give_the_same_headers():
    heads = [event.head for event in read_stream([create_bundle(EXCHANGES)]) if hasattr(event, "head")]
    bundle = open_bundle(create_bundle(EXCHANGES))
    assert [head.headers for head in heads] == [bundle.response(url).headers for url in bundle]
