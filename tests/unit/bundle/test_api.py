"""headgate.bundle: the names that it exports, and headgate.bundle.api."""

import importlib
import io
import pickle
import subprocess
import sys

import pytest

from headgate.bundle import (
    Exchange,
    create_bundle,
    open_bundle,
    read_stream,
)
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
        for package in ("headgate.bundle", "headgate.bundle.sources", "headgate.bundle.signing"):
            module = importlib.import_module(package)
            for name in module.__all__:
                assert getattr(module, name) is not None, (package, name)

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


class TestBundle:
    def test_contains_accepts_any_form_of_a_url(self):
        bundle = open_bundle(create_bundle(EXCHANGES))
        for url in (PAGE, "https://example.com", "HTTPS://example.com:443/", f"{PAGE}#top"):
            assert url in bundle, url
        for url in ("https://example.com/other", "style.css", "", 7, None):
            assert url not in bundle, url


class TestResponse:
    def test_headers_are_found_in_any_case(self):
        headers = open_bundle(create_bundle(EXCHANGES)).response(PAGE).headers
        assert headers["Content-Type"] == headers["content-type"] == headers.get("CONTENT-TYPE") == HTML["Content-Type"]
        assert "ETag" in headers
        assert headers.get("Age") is None
        assert headers == {"content-type": HTML["Content-Type"], "etag": '"1"', "x-content-type-options": "nosniff"}
        with pytest.raises(KeyError):
            _ = headers["Age"]

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


class TestMapping:
    def test_a_url_in_brackets_is_its_response(self):
        bundle = open_bundle(create_bundle(EXCHANGES))
        assert bundle[STYLE] == bundle.response(STYLE)

    def test_an_unknown_url_in_brackets_is_a_key_error_with_a_plain_text(self):
        with pytest.raises(KeyError) as caught:
            _ = open_bundle(create_bundle(EXCHANGES))[PAGE + "other"]
        assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value))) == f"{PAGE}other is not in the bundle"


class TestWrongArguments:
    """Each is one sentence of `ConfigurationError`, not an error of Python's."""

    @pytest.mark.parametrize("kind", ["bytes", "path", "file"])
    def test_use_after_close(self, kind, tmp_path):
        path = tmp_path / "a.wbn"
        path.write_bytes(create_bundle(EXCHANGES))
        source = {"bytes": path.read_bytes(), "path": path, "file": io.BytesIO(path.read_bytes())}[kind]
        bundle = open_bundle(source)
        payload = bundle.response(STYLE).payload
        bundle.close()
        bundle.close()
        for use in (lambda: bundle[PAGE], lambda: bundle.read(0, 1), lambda: list(bundle.exchanges())):
            with pytest.raises(ConfigurationError, match=r"^the bundle is closed; open it again"):
                use()
        assert payload == b"p {}"

    def test_a_file_that_its_owner_has_closed(self):
        file = io.BytesIO(create_bundle(EXCHANGES))
        bundle = open_bundle(file)
        file.close()
        with pytest.raises(ConfigurationError, match="closed file"):
            _ = bundle[PAGE]
        with pytest.raises(ConfigurationError, match=r"closed file.*; expected .* an open, seekable binary file"):
            open_bundle(file)
