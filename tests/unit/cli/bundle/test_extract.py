import gzip
import json

import pytest

from headgate.cli.bundle.extract import FileNames
from tests import signers
from tests.malformed import parts

BASE = "https://example.com/"


def extracted(directory):
    entries = json.loads((directory / "exchanges.json").read_text())
    found = {str(path.relative_to(directory)) for path in (directory / "files").rglob("*") if path.is_file()}
    return entries, found


def test_payloads_are_files_and_the_rest_is_json(run, make, tmp_path):
    site = make({
        BASE: {"payload": b"home", "status": 203, "headers": {"content-type": "text/html", "x-a": "é"}},
        BASE + "a/b.css?v=1": b"css",
        BASE + "page": [
            {"payload": key.encode(), "variant_key": key, "variants": "Accept-Language;en;fr"} for key in ("en", "fr")
        ],
    })  # fmt: skip
    out = tmp_path / "new" / "out"
    result = run("extract", site, "-o", out)
    assert result == (0, b"", f"{out}: 4 files, 11 B\n")
    entries, found = extracted(out)
    assert entries[0] == {
        "url": BASE, "variant_key": None, "status": 203, "headers": {"content-type": "text/html", "x-a": "é"},
        "file": "files/example.com/index.html",
    }  # fmt: skip
    assert {entry["file"] for entry in entries} == found
    content = {(entry["url"], entry["variant_key"]): (out / entry["file"]).read_bytes() for entry in entries}
    assert content == {
        (BASE, None): b"home", (BASE + "a/b.css?v=1", None): b"css",
        (BASE + "page", "en"): b"en", (BASE + "page", "fr"): b"fr",
    }  # fmt: skip


def test_shared_payload_is_written_once(run, make, tmp_path):
    shared = {"payload": b"x", "variant_key": ["en", "fr"], "variants": "Accept-Language;en;fr"}
    assert run("extract", make({BASE: [shared]}), "-o", tmp_path / "out").code == 0
    entries, found = extracted(tmp_path / "out")
    assert [entry["variant_key"] for entry in entries] == ["en", "fr"]
    assert len(found) == 1
    assert entries[0]["file"] == entries[1]["file"]


@pytest.mark.parametrize("name", ["files", "exchanges.json"])
@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling"])
def test_existing_files_and_links_are_not_overwritten(run, make, tmp_path, name, kind):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    match kind:
        case "file":
            (out / name).write_bytes(b"mine")
        case "directory":
            (out / name).mkdir()
        case "link":
            (out / name).symlink_to(elsewhere)
        case "dangling":
            (out / name).symlink_to(elsewhere / "new")
    before = sorted(out.iterdir())
    result = run("extract", make({BASE: b"home"}), "-o", out)
    assert result.code == 2
    assert result.err == f"headgate: {out / name} exists; remove it, or name another directory\n"
    assert sorted(out.iterdir()) == before
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("there", [True, False])
def test_failed_extraction_leaves_nothing(run, make, tmp_path, monkeypatch, there):
    site = make({BASE: b"home", BASE + "x": b"other"})
    out = tmp_path / "out"
    if there:
        out.mkdir()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headgate.cli.bundle.extract.json.dumps", full)
    result = run("extract", site, "-o", out)
    assert result.code == 1
    assert "No space left" in result.err
    assert out.exists() is there
    assert not there or not list(out.iterdir())


def test_directory_that_cannot_be_created_is_wrong_use(run, make, tmp_path):
    site = make({BASE: b"home"})
    result = run("extract", site, "-o", site)
    assert result.code == 2
    assert result.err.startswith(f"headgate: {site}")
    assert run("extract", tmp_path / "nope.wbn", "-o", tmp_path / "out").code == 2
    assert not (tmp_path / "out").exists()


def test_output_for_shared_headers_is_limited(run, tmp_path):
    long = parts.header_map({b":status": b"200", b"content-type": b"text/plain", b"x": b"y" * 500_000})
    path = tmp_path / "sharing.wbn"
    path.write_bytes(parts.sharing(200, parts.response(long)).written())
    for command in (("extract", "-o", tmp_path / "out"), ("list", "--json")):
        result = run(command[0], path, *command[1:])
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "many URLs share long headers" in result.err
        assert len(result.out) < 80_000_000
    assert not (tmp_path / "out").exists()
    path.write_bytes(parts.sharing(2_000, parts.RESPONSES[0]).written())
    assert run("extract", path, "-o", tmp_path / "out").code == 0
    assert len(run("list", path, "--json").objects) == 2_000


def test_overlapping_responses_are_refused(run, tmp_path):
    path = tmp_path / "nested.wbn"
    path.write_bytes(parts.nested(50).written())
    assert len(run("list", path, "--json").objects) == 50
    result = run("extract", path, "-o", tmp_path / "out")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "the responses overlap" in result.err
    assert not (tmp_path / "out").exists()
    assert run("get", path, f"{parts.PRIMARY}0").out == b"x" * 1_000


NAMES = [
    ("https://example.com/", "example.com/index.html"),
    ("https://example.com/a/b.css", "example.com/a/b.css"),
    ("https://example.com/a/", "example.com/a/index.html"),
    ("https://example.com:8443/a", "example.com%3A8443/a"),
    ("https://example.com/f.html?v=0&w=/x", "example.com/f.html%3Fv=0&w=%2Fx"),
    ("https://example.com/?q", "example.com/index.html%3Fq"),
    ("https://example.com/a//b", "example.com/a/_/b"),
    ("https://example.com/a%2Fb", "example.com/a%2Fb"),
    ("https://example.com/a\\b", "example.com/a%5Cb"),
    ("https://example.com/a:b", "example.com/a%3Ab"),
    ("https://example.com/nul\0byte", "example.com/nul%00byte"),
    ("https://example.com/caf\u00e9", "example.com/caf%C3%A9"),
    ("https://[::1]/x", "%5B%3A%3A1%5D/x"),
    ("urn:uuid:0f6e", "urn/uuid%3A0f6e"),
    ("data:../../../etc/passwd", "data/%2E%2E/%2E%2E/%2E%2E/etc/passwd"),
    ("foo://../x", "%2E%2E/x"),
    ("foo:///etc/passwd", "foo/etc/passwd"),
    ("foo:/C:/x", "foo/C%3A/x"),
    ("foo:.", "foo/%2E"),
    ("https://example.com/a.../b. ", "example.com/a%2E%2E%2E/b.%20"),
    ("https://example.com/CON/nul.txt", "example.com/%43ON/%6Eul.txt"),
    ("https://example.com/.htaccess", "example.com/.htaccess"),
]


def test_names_are_readable_and_portable():
    assert [(url, FileNames().name(url)) for url, _ in NAMES] == NAMES


def test_variant_keys_are_in_the_names():
    names = FileNames()
    keys = ["gzip;en", 'br;"x y"', "gzip;EN", "."]
    assert [names.name("http://h/a.html", key) for key in keys] == [
        "h/a~gzip_en.html",
        "h/a~br__x_y_.html",
        "h/a~gzip_EN~2.html",
        "h/a~_.html",
    ]


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
def test_get_decodes_signed_payloads(run, plain, signed, wanted, tmp_path):
    assert run("get", signed, *wanted) == run("get", plain, *wanted)
    assert run("get", signed, *wanted, "--headers") == run("get", plain, *wanted, "--headers")
    assert run("get", signed, *wanted, "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out").read_bytes() == run("get", plain, *wanted).out


def test_get_refuses_a_changed_signed_payload(run, broken, tmp_path):
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


def test_extract_decodes_signed_payloads(run, plain, signed, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    assert run("extract", signed, "-o", after).code == 0
    message = run("extract", plain, "-o", before).err
    assert run("extract", signed, "-o", tmp_path / "again").err == message.replace("before", "again")
    assert entries_of(after) == entries_of(before)
    for entry in entries_of(before):
        assert (after / entry["file"]).read_bytes() == (before / entry["file"]).read_bytes()


def test_extract_reports_a_changed_signed_payload(run, broken, tmp_path):
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
