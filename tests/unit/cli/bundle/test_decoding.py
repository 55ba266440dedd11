"""What is signed is shown as it was before; what lists, converts, verifies and signs takes it as it is stored."""

import gzip
import json

import pytest

from headgate.bundle import open_bundle
from tests import signers

BASE = "https://example.com/"
LONG = b"".join(b"%07d\n" % number for number in range(3_000))
ZIPPED = gzip.compress(LONG, mtime=0)
STEP = "draft-thomson-http-mice-03, 2.2"


@pytest.fixture
def plain(make):
    return make({
        BASE: {"payload": LONG, "headers": {"content-type": "text/plain", "etag": '"one"'}},
        BASE + "zipped": {"payload": ZIPPED, "headers": {"content-type": "text/plain", "content-encoding": "gzip"}},
        BASE + "page": [
            {"payload": key.encode(), "variant_key": key, "variants": "Accept-Language;en;fr"} for key in ("en", "fr")
        ],
        BASE + "empty": b"",
    })  # fmt: skip


@pytest.fixture
def signed(plain, tmp_path):
    path = tmp_path / "signed.wbn"
    path.write_bytes(signers.vouched(plain.read_bytes()))
    return path


@pytest.fixture
def broken(signed, tmp_path):
    """Two responses were changed: one in its last record, the other is all one record."""
    path = tmp_path / "broken.wbn"
    path.write_bytes(signers.tampered(signers.tampered(signed.read_bytes(), BASE), BASE + "page", "fr"))
    return path


WANTED = [(BASE,), (BASE + "zipped",), (BASE + "empty",), (BASE + "page", "-H", "Accept-Language: fr"),
          (BASE + "page", "--variant-key", "en"), (BASE + "page",)]  # fmt: skip


@pytest.mark.parametrize("wanted", WANTED)
def test_get_gives_what_it_was_before_it_was_signed(run, plain, signed, wanted, tmp_path):
    assert run("get", signed, *wanted) == run("get", plain, *wanted)
    assert run("get", signed, *wanted, "--headers") == run("get", plain, *wanted, "--headers")
    assert run("get", signed, *wanted, "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == run("get", plain, *wanted).out


def test_get_gives_nothing_of_what_was_changed(run, broken, tmp_path):
    got = run("get", broken, BASE, "--headers")
    assert (got.code, got.out) == (1, b"")
    assert got.err.startswith(f"headgate: {broken}: record 5 is not what its digest says at byte ")
    assert got.err.endswith(f" ({STEP}); try {BASE} instead\n")
    out = tmp_path / "out"
    assert run("get", broken, BASE, "-o", out).code == 1
    assert not out.exists()
    assert run("get", broken, BASE + "page", "--variant-key", "fr").code == 1
    assert run("get", broken, BASE + "page", "--variant-key", "en").out == b"en"
    assert run("get", broken, BASE + "zipped").out == ZIPPED


def entries_of(directory):
    return json.loads((directory / "exchanges.json").read_text())


def test_extract_writes_what_it_was_before_it_was_signed(run, plain, signed, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    assert run("extract", signed, "-o", after).code == 0
    said = run("extract", plain, "-o", before).err
    assert run("extract", signed, "-o", tmp_path / "again").err == said.replace("before", "again")
    assert entries_of(after) == entries_of(before)
    for entry in entries_of(before):
        assert (after / entry["file"]).read_bytes() == (before / entry["file"]).read_bytes()


def test_extract_tells_of_what_was_changed_and_goes_on(run, broken, tmp_path):
    out = tmp_path / "out"
    got = run("extract", broken, "-o", out)
    assert got.code == 1
    assert "2 responses refused" in got.err
    entries = {(entry["url"], entry["variant_key"]): entry for entry in entries_of(out)}
    for key, number in [((BASE, None), 5), ((BASE + "page", "fr"), 0)]:
        entry = entries.pop(key)
        assert (entry["error"], entry["step"]) == ("response", STEP)
        assert entry["message"] == f"record {number} is not what its digest says"
        assert "file" not in entry
    assert {(out / entry["file"]).read_bytes() for entry in entries.values()} == {ZIPPED, b"en", b""}
    assert len([path for path in (out / "files").rglob("*") if path.is_file()]) == len(entries)


def test_what_is_stored_is_listed_and_kept(run, signed, broken, tmp_path):
    with open_bundle(signed) as bundle:
        stored = bundle.response(BASE)
    listed = next(line for line in run("list", signed, "--json").objects if line["url"] == BASE)
    assert listed["headers"] == stored.stored_headers
    assert listed["headers"]["content-encoding"] == "mi-sha256-03"
    assert listed["payload_length"] == len(stored.payload) > len(LONG)
    assert run("list", broken).code == 0
    out = tmp_path / "converted.wbn"
    assert run("convert", broken, "--version", "draft-01", "-o", out).code == 0
    with open_bundle(broken) as bundle, open_bundle(out) as converted:
        assert converted.response(BASE).payload == bundle.response(BASE).payload


def test_many_keys_of_one_location_are_refused_each(run, make, tmp_path):
    plain = make({BASE: {"payload": b"both", "variants": "Accept-Language;en;fr", "variant_key": ["en", "fr"]}})
    path = tmp_path / "shared.wbn"
    with open_bundle(plain) as bundle:
        keys = list(bundle.metadata.requests[BASE].locations)
    path.write_bytes(signers.tampered(signers.vouched(plain.read_bytes()), BASE, keys[0]))
    run("extract", path, "-o", tmp_path / "out")
    entries = entries_of(tmp_path / "out")
    assert [entry["variant_key"] for entry in entries] == keys
    assert all(entry["error"] == "response" for entry in entries)
