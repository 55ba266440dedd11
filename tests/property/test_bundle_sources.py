"""Sources: any file names, and HARs with any content."""

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import can_ada  # type: ignore[import-untyped]
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.bundle import BundleWriter, open_bundle
from headgate.bundle.files.payloads import FilePayload
from headgate.bundle.model import Exchange
from headgate.bundle.sources import directory, har
from headgate.bundle.sources.codings import DECODERS, DecodingError, decode_chunks
from headgate.bundle.sources.directory import INDEX, WELL_KNOWN
from headgate.bundle.sources.selection import filter_headers, with_content_type
from headgate.errors import ConfigurationError

BASE = "https://example.com/base/"

ODD = [b"index.html", b"%2e%2e", b"%2E", b"...", b"a\\b", b"..\\..", b"a#b", b"?", b"%", b" ", b"\xff", b"~", b"C:"]
NAMES = st.one_of(
    st.sampled_from(ODD),
    st.binary(min_size=1, max_size=12),
    st.text(min_size=1, max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
).filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b".."))
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), max_size=8)

slow = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)


def planted(root: str, paths: Iterable[tuple[bytes, ...]]) -> set[bytes]:
    """Make the files that there is a place for, and give their paths from the root."""
    made = set()
    for path in paths:
        file = Path(root, *map(os.fsdecode, path))
        with suppress(OSError):  # a name that is a file's already, or a directory's
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(exist_ok=False)
            made.add(b"/".join(path))
    return made


def is_shown(path: bytes) -> bool:
    return all(not name.startswith(b".") or name == WELL_KNOWN.encode() for name in path.split(b"/"))


@given(PATHS)
@example([(b"index.html", b"index.html"), (b"a", b"index.html"), (b"a%2Findex.html",), (b"a",)])
@slow
def test_each_file_has_a_unique_url_that_decodes_to_its_path(paths: list[tuple[bytes, ...]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        files = {path for path in planted(made, paths) if is_shown(path)}
        exchanges = list(directory(Path(made), BASE))
        real = os.path.realpath(os.fsencode(made)) + b"/"
    urls = [exchange.url for exchange in exchanges]
    assert len(urls) == len(set(urls))
    assert urls == [can_ada.parse(url).href for url in urls]
    found = set()
    for exchange in exchanges:
        path = unquote_to_bytes(exchange.url.removeprefix(BASE))
        if exchange.status == 200:
            assert isinstance(exchange.payload, FilePayload)
            file = os.fsencode(exchange.payload).removeprefix(real)
            assert file == path + (INDEX.encode() if path == b"" or path.endswith(b"/") else b"")
            found.add(file)
        else:
            assert path.rpartition(b"/")[2] == INDEX.encode()
    assert found == files


def bundled(exchanges: Iterable[Exchange]) -> bytes:
    target = BytesIO()
    with BundleWriter(target, version="b2") as writer:
        for exchange in exchanges:
            writer.add_exchange(exchange)
    return target.getvalue()


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20))), st.text(max_size=20))
def test_filtered_fields_can_be_written(fields: list[tuple[str, str]], mime_type: str) -> None:
    headers = with_content_type(filter_headers(fields), mime_type)
    with open_bundle(bundled([Exchange(BASE, 200, headers, b"x")])) as bundle:
        stored = dict(bundle.response(BASE).headers)
    stored.pop("x-content-type-options")
    headers.pop("x-content-type-options", None)
    assert stored == headers


@given(st.sampled_from(sorted(DECODERS)), st.lists(st.binary(max_size=200)))
def test_any_bytes_are_decoded_or_refused(coding: str, parts: list[bytes]) -> None:
    with suppress(DecodingError):
        list(decode_chunks(parts, coding))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
ENTRY = {
    "startedDateTime": "2021-10-01T12:41:40.000Z",
    "request": {"method": "GET", "url": BASE, "headers": [{"name": "cookie", "value": "a=b"}]},
    "response": {
        "status": 200,
        "headers": [{"name": "Content-Type", "value": "text/html; charset=x"}, {"name": "Set-Cookie", "value": "a"}],
        "content": {"size": 5, "mimeType": "text/html", "text": "hello", "encoding": ""},
    },
}


@given(st.data())
@slow
def test_any_har_gives_writable_exchanges_or_an_error(data: st.DataObject) -> None:
    entries = [mutated(data, json.loads(json.dumps(ENTRY))) for _ in range(data.draw(st.integers(1, 3)))]
    read_hostile(har, json.dumps({"log": {"entries": entries}}).encode())


def mutated(data: st.DataObject, value: Any) -> Any:
    """Put something else somewhere into a value."""
    children = (
        list(value.items() if isinstance(value, dict) else enumerate(value)) if isinstance(value, dict | list) else []
    )
    if not children or data.draw(st.integers(0, 5)) == 0:
        return data.draw(JSON | st.sampled_from(["base64", "\ud800", 206, "GET", BASE, "é", "YWJj", "", None]))
    key, child = data.draw(st.sampled_from(children))
    value[key] = mutated(data, child)
    return value


def read_hostile(source: Any, content: bytes) -> None:
    """Read a file that may be invalid, and write its exchanges into a bundle."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "file")
        path.write_bytes(content)
        messages: list[str] = []
        try:
            exchanges = list(source(path, tell=messages.append))
        except ConfigurationError as error:
            messages.append(str(error))
            exchanges = []
    assert all("\n" not in sentence for sentence in messages)
    assert exchanges or messages
    written = bundled(exchanges)
    if exchanges:
        with open_bundle(written, profile="strict") as bundle:
            assert [stored.url for stored in bundle.exchanges()] == [exchange.url for exchange in exchanges]
