import gzip
import json
import os
from pathlib import Path

import pytest

from headgate.bundle import open_bundle
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
    assert run("lint", out).code == 0


def test_base_url_of_a_host_needs_no_slash(run, folder, out):
    assert run("create", "--dir", folder, "--base-url", "https://example.com", "-o", out).code == 0
    assert (BASE + "a/long.txt", None) in lines_of(run, out)
    deeper = run("create", "--dir", folder, "--base-url", BASE + "p/q/", "-o", out)
    assert deeper.code == 0
    assert (BASE + "p/q/a/long.txt", None) in lines_of(run, out)


def test_the_same_files_give_the_same_bytes(run, folder, out):
    assert run("create", "--dir", folder, "--base-url", BASE, "-o", out).code == 0
    first = out.read_bytes()
    os.utime(folder / "index.html", (1, 1))
    piped = run("create", "--dir", folder, "--base-url", BASE, "-o", "-")
    assert (piped.code, piped.out) == (0, first)


MANIFESTS = [
    ("manifest.webmanifest", "b1", "manifest.webmanifest"),
    ("manifest.json", "b1", "manifest.json"),
    ("manifest.json", "draft-01", "manifest.json"),
    ("manifest.json", "b2", None),
    (None, "b2", None),
]


@pytest.mark.parametrize(("name", "version", "found"), MANIFESTS)
def test_manifest_of_a_directory_is_found(run, folder, out, name, version, found):
    if name:
        (folder / name).write_bytes(b"{}")
    result = run("create", "--dir", folder, "--base-url", BASE, "--version", version, "-o", out)
    assert result.code == 0
    assert "strict" not in result.err
    fields = run("info", out, "--json").json
    assert (fields["version"], fields["manifest_url"]) == (version, found and BASE + found)


def test_every_other_command_reads_the_bundle(run, folder, out, tmp_path):
    assert run("create", "--dir", folder, "--base-url", BASE, "-o", out).code == 0
    for words in (["info", out], ["list", out], ["get", out, BASE], ["get", out, "/a/long.txt"], ["lint", out],
                  ["extract", out, "-o", tmp_path / "files"], ["rebase", out, "--to", "http://a.test", "-o", out],
                  ["convert", out, "--version", "b2", "-o", out]):  # fmt: skip
        result = run(*words)
        assert result.code == 0, result.err


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


def test_primary_and_manifest_url_can_be_given(run, folder, out):
    flags = ("--primary-url", BASE + "a/long.txt", "--manifest-url", BASE)
    assert run("create", "--dir", folder, "--base-url", BASE, "-o", out, *flags).code == 0
    fields = run("info", out, "--json").json
    assert (fields["primary_url"], fields["manifest_url"]) == (BASE + "a/long.txt", BASE)


@pytest.mark.parametrize(("version", "primary"), [("b1", BASE), ("b2", None)])
def test_directory_without_index_has_no_primary_url(run, folder, out, version, primary):
    (folder / "index.html").unlink()
    (folder / "manifest.json").write_bytes(b"{}")
    result = run("create", "--dir", folder, "--base-url", BASE, "--version", version, "-o", out)
    assert result.code == 0
    assert ("primary URL https://example.com/ is not in the bundle" in result.err) is (version == "b1")
    assert run("info", out, "--json").json["primary_url"] == primary


def test_given_header_is_set_in_each_response(run, folder, out):
    flags = ("-H", "Cache-Control: max-age=60", "-H", "x-a: 1", "-H", "X-A: 2")
    assert run("create", "--dir", folder, "--base-url", BASE, "-o", out, *flags).code == 0
    for line in lines_of(run, out).values():
        assert (line["headers"]["cache-control"], line["headers"]["x-a"]) == ("max-age=60", "1, 2")
        assert line["headers"]["content-type"].startswith("text/")


def test_compress_adds_variants(run, folder, out):
    flags = ("--version", "b1", "--manifest-url", BASE, "--compress", "gzip")
    assert run("create", "--dir", folder, "--base-url", BASE, "-o", out, *flags).code == 0
    url = BASE + "a/long.txt"
    keys = {key for found, key in lines_of(run, out) if found == url}
    assert keys == {"gzip", "identity"}
    plain, packed = (run("get", out, url, "-H", f"Accept-Encoding: {coding}").out for coding in ("identity", "gzip"))
    assert gzip.decompress(packed) == plain == b"again and " * 500
    assert len(packed) < len(plain) / 10


def test_output_file_is_left_out(run, folder):
    out = folder / "site.wbn"
    for _ in range(2):
        result = run("create", "--dir", folder, "--base-url", BASE, "-o", out)
        assert result.code == 0
    assert "left out https://example.com/site.wbn: it is the output file" in result.err
    assert BASE + "site.wbn" not in {url for url, _ in lines_of(run, out)}


def test_left_out_files_are_printed(run, folder, out):
    (folder / "secret").symlink_to("/etc")
    result = run("create", "--dir", folder, "--base-url", BASE, "-o", out)
    assert result.code == 0
    assert "left out" in result.err
    assert "secret" in result.err


def test_har_becomes_a_bundle(run, tmp_path, out):
    entry = {
        "request": {"method": "GET", "url": BASE + "page", "headers": []},
        "response": {"status": 200, "headers": [], "content": {"mimeType": "text/html", "text": "<p>"}},
    }
    (tmp_path / "page.har").write_text(json.dumps({"log": {"entries": [entry]}}))
    result = run("create", "--har", tmp_path / "page.har", "--version", "b2", "-o", out)
    assert result.code == 0
    assert run("info", out, "--json").json["primary_url"] == BASE + "page"
    assert run("get", out, BASE + "page").out == b"<p>"


def test_warc_becomes_a_bundle(run, tmp_path, out):
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"
    head = (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000001>\r\n"
        b"WARC-Date: 2020-01-01T00:00:00Z\r\nWARC-Target-URI: https://example.com/page\r\n"
        b"Content-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n"
    )
    (tmp_path / "page.warc").write_bytes(head % len(http) + http + b"\r\n\r\n")
    assert run("create", "--warc", tmp_path / "page.warc", "--version", "b2", "-o", out).code == 0
    assert run("get", out, BASE + "page").out == b"hi"


def test_failed_create_leaves_the_old_file(run, folder, out):
    out.write_bytes(b"before")
    result = run("create", "--dir", folder, "--base-url", BASE, "-o", out, "--manifest-url", BASE + "no")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert out.read_bytes() == b"before"
    assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []


def test_empty_source_writes_no_bundle(run, tmp_path, out):
    (tmp_path / "empty").mkdir()
    result = run("create", "--dir", tmp_path / "empty", "--base-url", BASE, "-o", out)
    assert result.code == 2
    assert result.err.endswith("headgate: the source has no exchanges; no bundle is written\n")
    assert not out.exists()


def test_urls_may_be_relative_to_the_base_url(run, folder, out):
    flags = ("--version", "b1", "--manifest-url", "a/long.txt", "--primary-url", "/a/long.txt")
    assert run("create", "--dir", folder, "--base-url", "https://example.com", "-o", out, *flags).code == 0
    fields = run("info", out, "--json").json
    assert (fields["primary_url"], fields["manifest_url"]) == (BASE + "a/long.txt",) * 2
    assert run("convert", out, "--version", "draft-01", "--manifest-url", "/", "-o", out).code == 0
    assert run("info", out, "--json").json["manifest_url"] == BASE


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
    (
        ["--dir", "site", "--base-url", BASE, "--compress", "lzma", "--version", "b1", "--manifest-url", BASE],
        "'lzma' is not a supported coding",
    ),
    (["--dir", "site", "--base-url", BASE, "--compress", ""], "expected a form such as gzip,br"),
    (
        ["--dir", "site", "--base-url", BASE, "--compress", "gzip"],
        "--compress stores variants, which b2 does not have; add --version b1",
    ),
    (["--dir", "site", "--base-url", BASE, "--version", "b3"], "'b3'"),
    (["--dir", "site", "--base-url", BASE, "-H", "no field"], "invalid header field"),
    (["--dir", "site", "--base-url", BASE, "--primary-url", "/x"], "https://example.com/x is not in the bundle"),
    (["--har", "nowhere.har"], "nowhere.har"),
    (["--warc", "nowhere.warc"], "nowhere.warc"),
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


def test_relative_urls_are_resolved_against_the_readers_base(run, folder, tmp_path):
    out = tmp_path / "relative.wbn"
    assert run("create", "--dir", folder, "--base-url", BASE, "--relative-urls", "-o", out).code == 0
    with open_bundle(out) as bundle:
        assert (bundle.primary_url, bundle.urls) == ("./", ("./", "./a/long.txt", "./index.html"))
    with open_bundle(out, base_url="https://other.example/x/") as bundle:
        assert bundle.response("https://other.example/x/").text == "<p>home</p>"
        assert "https://other.example/x/a/long.txt" in bundle
    for arguments in (["--dir", folder, "--base-url", BASE, "--version", "b1"], ["--har", "x"]):
        result = run("create", *arguments, "--relative-urls", "-o", out)
        assert (result.code, "--relative-urls is for --dir and b2 only" in result.err) == (2, True)


APPLICATION = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        status = 404 if scope["path"] == "/missing" else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": scope["path"].encode()})
"""


class TestAsgi:
    @pytest.fixture(autouse=True)
    def in_a_folder_with_an_application(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sample_asgi_site.py").write_text(APPLICATION)
        (tmp_path / "urls.txt").write_text(f"{BASE}\n{BASE}page\n")

    def test_asgi_application_is_called_for_each_url(self, run):
        result = run("create", "--asgi", "sample_asgi_site:app", "--urls", "urls.txt", "-o", "app.wbn")
        assert result.code == 0
        assert result.err.startswith("app.wbn: 2 responses, ")
        with open_bundle("app.wbn") as bundle:
            assert [bundle.response(url).text for url in bundle] == ["/", "/page"]

    def test_error_response_is_left_out_and_is_exit_code_1(self, run, tmp_path):
        (tmp_path / "urls.txt").write_text(f"{BASE}\n{BASE}missing\n")
        result = run("create", "--asgi", "sample_asgi_site:app", "--urls", "urls.txt", "-o", "app.wbn")
        assert result.code == 1
        assert f"left out {BASE}missing: answered 404" in result.err

    def test_wrong_use_of_asgi_is_refused(self, run):
        rows = [
            (["--asgi", "sample_asgi_site:app"], "name one source"),
            (["--asgi", "sample_asgi_site:app", "--dir", ".", "--base-url", BASE], "--asgi is for --urls only"),
            (["--asgi", "no_such_module:app", "--urls", "urls.txt"], "expected MODULE:APP"),
            (["--asgi", "sample_asgi_site", "--urls", "urls.txt"], "expected MODULE:APP"),
        ]
        for arguments, message in rows:
            result = run("create", *arguments, "-o", "app.wbn")
            assert (result.code, result.out) == (2, b"")
            assert message in result.err
