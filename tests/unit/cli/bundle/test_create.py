import json
from pathlib import Path

import pytest

from tests.malformed import named

BASE = "https://example.com/"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "site"
    (root / "a").mkdir(parents=True)
    (root / "index.html").write_bytes(b"<p>home</p>")
    (root / "a" / "long.txt").write_bytes(b"again and " * 500)
    return root


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.wbn"


def lines_of(run, bundle):
    result = run("list", bundle, "--json")
    assert result.code == 0
    return {(line["url"], line["variant_key"]): line for line in result.objects}


def test_directory_becomes_a_bundle(run, folder, out):
    (folder / "manifest.json").write_bytes(b"{}")
    result = run("create", "--dir", folder, "--base-url", BASE, "-o", out)
    assert result == (0, b"", f"{out}: 4 responses, {result.err.split(', ')[1]}, b2\n")
    fields = run("info", out, "--json").json
    assert (fields["version"], fields["primary_url"], fields["manifest_url"]) == ("b2", BASE, None)
    assert {url for url, _ in lines_of(run, out)} == {
        BASE, BASE + "index.html", BASE + "a/long.txt", BASE + "manifest.json",
    }  # fmt: skip
    assert run("get", out, BASE) == (0, b"<p>home</p>", "")
    assert run("check", out).code == 0


def test_har_becomes_a_bundle(run, tmp_path, out):
    content = {"size": 1, "mimeType": "text/html", "text": "ж"}
    answer = {"status": 200, "headers": [{"name": "Content-Type", "value": "text/html; charset=koi8-r"}]}
    entries = [
        {"request": {"method": method, "url": url, "headers": []}, "response": {**answer, "content": content}}
        for method, url in (("GET", BASE), ("POST", BASE + "api"), ("GET", BASE + "a#x"))
    ]
    (tmp_path / "a.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    result = run("create", "--har", tmp_path / "a.har", "--version", "b1", "--manifest-url", BASE, "-o", out)
    assert result.code == 0
    assert "not a GET request" in result.err
    assert list(lines_of(run, out)) == [(BASE, None), (BASE + "a", None)]
    assert run("info", out, "--json").json["primary_url"] == BASE
    assert run("get", out, BASE).out.decode() == "ж"


@pytest.mark.parametrize("version", ["b1", "draft-01"])
def test_only_b2_is_written_without_a_manifest(run, folder, out, version):
    out.write_bytes(b"before")
    result = run("create", "--dir", folder, "--base-url", BASE, "--version", version, "-o", out)
    assert (result.code, result.out) == (2, b"")
    assert result.err == (
        f"headgate: {folder}: no manifest found; a {version} bundle needs one: use --manifest-url, or write b2\n"
    )
    assert out.read_bytes() == b"before"
    flags = ("--version", version, "--manifest-url", BASE + "a/long.txt")
    assert run("create", "--dir", folder, "--base-url", BASE, "-o", out, *flags).code == 0
    assert run("list", out).code == 0


@pytest.mark.parametrize(("version", "primary"), [("b1", BASE), ("b2", None)])
def test_directory_without_index_has_no_primary_url(run, folder, out, version, primary):
    (folder / "index.html").unlink()
    (folder / "manifest.json").write_bytes(b"{}")
    result = run("create", "--dir", folder, "--base-url", BASE, "--version", version, "-o", out)
    assert result.code == 0
    assert ("primary URL https://example.com/ is not in the bundle" in result.err) is (version == "b1")
    assert run("info", out, "--json").json["primary_url"] == primary


def test_output_file_is_left_out(run, folder):
    out = folder / "site.wbn"
    for _ in range(2):
        result = run("create", "--dir", folder, "--base-url", BASE, "-o", out)
        assert result.code == 0
    assert "left out https://example.com/site.wbn: it is the output file" in result.err
    assert BASE + "site.wbn" not in {url for url, _ in lines_of(run, out)}


def test_empty_source_writes_no_bundle(run, tmp_path, out):
    (tmp_path / "empty").mkdir()
    result = run("create", "--dir", tmp_path / "empty", "--base-url", BASE, "-o", out)
    assert result.code == 2
    assert result.err.endswith("headgate: the source has no exchanges; no bundle is written\n")
    assert not out.exists()


WRONG = [
    (["site"], "unexpected argument 'site'; name the source with an option, such as --dir site --base-url URL"),
    (["--urls", "https://example.com/"], "--urls takes a file"),
    ([], "name one source"),
    (["--dir", "site", "--har", "x"], "name one source"),
    (["--dir", "site"], "--dir needs --base-url"),
    (["--har", "x", "--base-url", BASE], "--base-url is for --dir only"),
    (["--dir", "nowhere", "--base-url", BASE], "nowhere"),
    (["--dir", "site", "--base-url", "example.com"], "'--base-url': invalid base URL 'example.com'"),
    (["--dir", "site", "--base-url", "https://x/p/q"], "must end in a slash, as in https://x/p/q/"),
    (["--dir", "site", "--base-url", BASE, "--version", "b3"], "'b3'"),
    (["--dir", "site", "--base-url", BASE, "-H", "no field"], "invalid header field"),
    (["--dir", "site", "--base-url", BASE, "--primary-url", "/x"], "https://example.com/x is not in the bundle"),
    (["--har", "nowhere.har"], "nowhere.har"),
    (["--urls", "nowhere.txt"], "nowhere.txt"),
]


def test_conflicting_options_are_wrong_use(run, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for flags, words in WRONG:
        with named(" ".join(flags)):
            result = run("create", *flags, "-o", "out.wbn")
            assert (result.code, result.out) == (2, b"")
            assert words in result.err
            assert result.err.count("\n") == 1
            assert not Path("out.wbn").exists()
