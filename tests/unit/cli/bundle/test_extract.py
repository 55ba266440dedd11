import json

import pytest

from tests.malformed import parts

BASE = "https://example.com/"


def extracted(directory):
    entries = json.loads((directory / "exchanges.json").read_text())
    found = {str(path.relative_to(directory)) for path in (directory / "files").rglob("*") if path.is_file()}
    return entries, found


def test_every_payload_is_a_file_and_the_rest_is_json(run, make, tmp_path):
    site = make({
        BASE: {"payload": b"home", "status": 203, "headers": {"content-type": "text/html", "x-a": "é"}},
        BASE + "a/b.css?v=1": b"css",
        BASE + "page": [
            {"payload": key.encode(), "variant_key": key, "variants": "Accept-Language;en;fr"} for key in ("en", "fr")
        ],
    })  # fmt: skip
    out = tmp_path / "new" / "out"
    told = run("extract", site, "-o", out)
    assert told == (0, b"", f"{out}: 4 files, 11 B\n")
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


def test_what_lists_and_what_extracts_agree(run, make, tmp_path):
    site = make({BASE: b"home", BASE + "x": {"payload": b"", "status": 404}})
    run("extract", site, "-o", tmp_path / "out")
    names = ("url", "variant_key", "status", "headers")
    listed = [{name: line[name] for name in names} for line in run("list", site, "--json").objects]
    assert listed == [{name: entry[name] for name in names} for entry in extracted(tmp_path / "out")[0]]


COLLIDING = [
    "https://example.com/", "http://example.com/", "https://example.com/index.html", "https://EXAMPLE.com/Index.html",
    "https://example.com/a", "https://example.com/a/b", "https://example.com/a/", "https://example.com/A/b",
    "https://example.com/a%2Fb", "https://example.com/a%5Cb", "https://example.com/..%2f..%2fetc/passwd",
    "https://example.com/a?b", "https://example.com/a%3Fb", "https://example.com//etc/passwd",
    "https://example.com/con", "https://example.com/" + "x" * 1_000, "https://example.com/" + "x" * 1_001,
    "https://example.com/" + "d/" * 3_000, "data:,x", "urn:uuid:1", "foo:../../../../tmp/x", "foo:/../../x", "foo://../x",
    "https://example.com/%00", "https://example.com/files", "https://example.com/exchanges.json",
]  # fmt: skip


def test_nothing_escapes_and_nothing_is_lost(run, make, tmp_path):
    site = make({url: f"{number}".encode() for number, url in enumerate(COLLIDING)})
    out = tmp_path / "a" / "b" / "c" / "out"
    assert run("extract", site, "-o", out).code == 0
    entries, found = extracted(out)
    assert len(found) == len(entries) == len(COLLIDING)
    assert {(out / entry["file"]).read_bytes() for entry in entries} == {str(n).encode() for n in range(len(COLLIDING))}
    assert sorted(path.name for path in out.iterdir()) == ["exchanges.json", "files"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    assert len({name.casefold() for name in found}) == len(found)


def test_a_shared_payload_is_written_once(run, make, tmp_path):
    shared = {"payload": b"x", "variant_key": ["en", "fr"], "variants": "Accept-Language;en;fr"}
    assert run("extract", make({BASE: [shared]}), "-o", tmp_path / "out").code == 0
    entries, found = extracted(tmp_path / "out")
    assert [entry["variant_key"] for entry in entries] == ["en", "fr"]
    assert len(found) == 1
    assert entries[0]["file"] == entries[1]["file"]


def test_a_refused_response_does_not_keep_the_others(run, make, tmp_path):
    site = make({BASE: b"home", BASE + "x": b"other"})
    content = site.read_bytes()
    at = content.index(b":status") + len(b":statusC")
    site.write_bytes(content[:at] + b"2x0" + content[at + 3 :])
    out = tmp_path / "out"
    told = run("extract", site, "-o", out)
    assert told == (1, b"", f"{out}: 1 file, 5 B, 1 response refused: see exchanges.json\n")
    entries, found = extracted(out)
    assert found == {"files/example.com/x"}
    assert (entries[0]["url"], entries[0]["error"], entries[0]["step"]) == (BASE, "response", "3.4 step 8")
    assert "file" not in entries[0]


@pytest.mark.parametrize("name", ["files", "exchanges.json"])
@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling"])
def test_what_is_there_is_neither_followed_nor_written_over(run, make, tmp_path, name, kind):
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
    told = run("extract", make({BASE: b"home"}), "-o", out)
    assert told.code == 2
    assert told.err == f"headgate: {out / name} exists; remove it, or name another directory\n"
    assert sorted(out.iterdir()) == before
    assert not list(elsewhere.iterdir())


def test_other_files_of_a_directory_stay(run, make, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_bytes(b"mine")
    assert run("extract", make({BASE: b"home"}), "-o", out).code == 0
    assert (out / "mine").read_bytes() == b"mine"


@pytest.mark.parametrize("there", [True, False])
def test_what_fails_leaves_nothing_behind(run, make, tmp_path, monkeypatch, there):
    site = make({BASE: b"home", BASE + "x": b"other"})
    out = tmp_path / "out"
    if there:
        out.mkdir()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headgate.cli.bundle.extract.json.dumps", full)
    told = run("extract", site, "-o", out)
    assert told.code == 1
    assert "No space left" in told.err
    assert out.exists() is there
    assert not there or not list(out.iterdir())


def test_a_directory_that_cannot_be_made_is_wrong_use(run, make, tmp_path):
    site = make({BASE: b"home"})
    told = run("extract", site, "-o", site)
    assert told.code == 2
    assert told.err.startswith(f"headgate: {site}")
    assert run("extract", tmp_path / "nope.wbn", "-o", tmp_path / "out").code == 2
    assert not (tmp_path / "out").exists()


def test_invalid_bundle_creates_no_directory(run, tmp_path):
    (tmp_path / "no").write_bytes(b"no bundle")
    assert run("extract", tmp_path / "no", "-o", tmp_path / "out").code == 1
    assert not (tmp_path / "out").exists()


def test_headers_that_many_urls_share_do_not_fill_the_disk(run, tmp_path):
    long = parts.header_map({b":status": b"200", b"content-type": b"text/plain", b"x": b"y" * 500_000})
    path = tmp_path / "sharing.wbn"
    path.write_bytes(parts.sharing(200, parts.response(long)).written())
    for command in (("extract", "-o", tmp_path / "out"), ("list", "--json")):
        told = run(command[0], path, *command[1:])
        assert (told.code, told.err.count("\n")) == (1, 1)
        assert "many URLs share long headers" in told.err
        assert len(told.out) < 80_000_000
    assert not (tmp_path / "out").exists()
    path.write_bytes(parts.sharing(2_000, parts.RESPONSES[0]).written())
    assert run("extract", path, "-o", tmp_path / "out").code == 0
    assert len(run("list", path, "--json").objects) == 2_000


def test_responses_inside_one_another_do_not_fill_the_disk(run, tmp_path):
    path = tmp_path / "nested.wbn"
    path.write_bytes(parts.nested(50).written())
    assert len(run("list", path, "--json").objects) == 50
    told = run("extract", path, "-o", tmp_path / "out")
    assert (told.code, told.err.count("\n")) == (1, 1)
    assert "the responses overlap" in told.err
    assert not (tmp_path / "out").exists()
    assert run("get", path, f"{parts.PRIMARY}0").out == b"x" * 1_000
