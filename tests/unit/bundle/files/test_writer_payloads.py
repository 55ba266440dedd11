"""Where payloads come from, what is kept of them, and what is left when one fails."""

import gc
import io
import os
import threading
import tracemalloc

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.errors import HeadgateError

PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest.webmanifest"
HTML, TEXT = {"content-type": "text/html"}, {"content-type": "text/plain"}


def begun(target, **options):
    return BundleWriter(target, version="b1", primary_url=PAGE, **{"manifest_url": PAGE, **options})


def drain(descriptor):
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


@pytest.mark.parametrize("kind", ["bytes", "path", "chunks", "promise"])
def test_payloads_of_every_kind_are_the_same_bytes(tmp_path, kind):
    content = os.urandom(700_000)
    (tmp_path / "payload").write_bytes(content)
    parts = [content[start : start + 100_000] for start in range(0, len(content), 100_000)]
    exchange = {
        "bytes": {"payload": content},
        "path": {"payload": tmp_path / "payload"},
        "chunks": {"payload": iter(parts)},
        "promise": {"payload": iter(parts), "length": len(content)},
    }[kind]
    target = io.BytesIO()
    with begun(target) as writer:
        writer.add(PAGE, headers=TEXT, **exchange)
        writer.add(MANIFEST, headers=TEXT, payload=b"{}")
    with open_bundle(target.getvalue(), profile="compat") as opened:
        assert bytes(opened.response(PAGE).payload) == content
        assert bytes(opened.response(MANIFEST).payload) == b"{}"


@pytest.mark.parametrize("change", [b"", b"short", b"much too long"])
def test_changed_file_writes_no_bundle(tmp_path, change):
    source, target = tmp_path / "page.html", tmp_path / "out.wbn"
    target.write_bytes(b"before")
    source.write_bytes(b"as long")
    writer = begun(target)
    writer.add(PAGE, headers=HTML, payload=source)
    source.write_bytes(change)
    with pytest.raises(HeadgateError, match="had 7 bytes when it was added"):
        writer.close()
    assert target.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.wbn", "page.html"]


def test_wrong_length_writes_no_bundle(tmp_path):
    writer = begun(tmp_path / "out.wbn")
    writer.add(PAGE, headers=HTML, payload=iter([b"abc"]), length=4)
    with pytest.raises(HeadgateError, match="end 1 bytes short of the 4 announced"):
        writer.close()
    assert list(tmp_path.iterdir()) == []


def add_and_fail(writer):
    with writer:
        writer.add(PAGE)
        raise ZeroDivisionError


def test_an_exception_in_the_block_writes_nothing(tmp_path):
    stream = io.BytesIO()
    for target in (tmp_path / "out.wbn", stream):
        writer = begun(target)
        with pytest.raises(ZeroDivisionError):
            add_and_fail(writer)
    assert list(tmp_path.iterdir()) == []
    assert stream.getvalue() == b""
    writer.close()  # which has nothing left to do
    assert stream.getvalue() == b""


def test_a_pipe_gets_it_in_order():
    """2.2: "ends before the first response": what comes first says where everything will be."""
    reading, writing = os.pipe()
    received = []
    reader = threading.Thread(target=lambda: received.append(drain(reading)))
    reader.start()
    with os.fdopen(writing, "wb", buffering=0) as pipe, begun(pipe, manifest_url=MANIFEST) as writer:
        writer.add(PAGE, headers=HTML, payload=bytes(1_000_000))
        writer.add(MANIFEST, headers=TEXT, payload=iter([b"{}"]))
    reader.join()
    with open_bundle(received[0]) as bundle:
        assert bytes(bundle.response(PAGE).payload) == bytes(1_000_000)
        assert bytes(bundle.response(MANIFEST).payload) == b"{}"


def test_what_is_kept_of_an_exchange_does_not_grow_with_its_payload(tmp_path):
    path = tmp_path / "payload"
    path.write_bytes(bytes(2_000_000))
    gc.collect()
    tracemalloc.start()
    try:
        with begun("/dev/null") as writer:
            for number in range(100):
                writer.add(f"{PAGE}file/{number}", headers=TEXT, payload=path)
                writer.add(f"{PAGE}part/{number}", headers=TEXT, payload=(bytes(100_000) for _ in range(10)))
            writer.add(PAGE, headers=TEXT)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2_000_000, "300 MB were written"


def test_ten_thousand_exchanges_are_cheap_to_keep():
    gc.collect()
    tracemalloc.start()
    try:
        writer = begun("/dev/null")
        for number in range(10_000):
            writer.add(f"{PAGE}{number:05}", headers={**TEXT, "etag": f'"{number}"'}, payload=b"")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / 10_000 < 500, "bytes for each"
