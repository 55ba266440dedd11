"""Sources into bundles with the whole command: what a real crawler archived, what a browser saved, a site on disk."""

import base64
import gzip
import hashlib
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import brotli
import pytest

from tests.e2e import programs
from tests.e2e.node_process import NodeProcess

BASE = "https://example.com/"
PROGRAM = [sys.executable, "-m", "headgate", "bundle"]
MEGABYTE = 1 << 20
SCRIPT = "".join(f"let line{number} = {number};\n" for number in range(500)).encode()


def run(*arguments):
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=programs.PATIENCE, check=False)


def created(out, *arguments):
    """Make a bundle; return its stderr."""
    done = run("create", *arguments, "-o", out)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    return done.stderr.decode()


def listed(bundle):
    """Return the lines of `list` for a valid bundle, by URL and variant key."""
    done = run("list", bundle, "--json", "--digest")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["url"], line["variant_key"]): line for line in lines}


def put(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def site(tmp_path):
    """Make a site on disk, with files that are left out of a bundle; return its root and the other files."""
    root = tmp_path / "site"
    files = {
        "index.html": "<!doctype html><title>é</title>".encode(),
        "docs/index.html": b"<!doctype html><p>docs",
        "app.js": SCRIPT,
        "style.css": b"p{color:teal}",
        "manifest.webmanifest": b"{}",
        "a b#c?d%e\\f.txt": b"odd",
        "logo.png": b"\x89PNG" + bytes(range(256)),
        ".well-known/security.txt": b"Contact: mailto:a@example.com\n",
    }
    for name, content in files.items():
        put(root, name, content)
    put(root, ".git/config", b"secret")
    put(tmp_path, "outside.txt", b"secret")
    (root / "outside.txt").symlink_to("../outside.txt")
    return root, files


@pytest.mark.parametrize(("version", "manifest"), [("b1", f"{BASE}manifest.webmanifest"), ("b2", None)])
def test_a_site_comes_back_as_it_was(site, tmp_path, version, manifest):
    root, files = site
    said = created(tmp_path / "site.wbn", "--dir", root, "--base-url", BASE, "--version", version)
    assert "left out" in said
    assert "hidden" in said
    assert "leads out of the directory" in said
    found = listed(tmp_path / "site.wbn")
    urls = {
        "index.html": BASE,
        "docs/index.html": f"{BASE}docs/",
        "a b#c?d%e\\f.txt": f"{BASE}a%20b%23c%3Fd%25e%5Cf.txt",
    }
    for name, content in files.items():
        line = found.pop((urls.get(name, BASE + name), None))
        assert line["payload_sha256"] == hashlib.sha256(content).hexdigest()
    moved = [(f"{BASE}index.html", None), (f"{BASE}docs/index.html", None)]
    assert {found.pop(key)["headers"]["location"] for key in moved} == {"./"}
    assert not found
    assert run("lint", tmp_path / "site.wbn").returncode == 0
    info = json.loads(run("info", tmp_path / "site.wbn", "--json").stdout)
    assert (info["primary_url"], info["manifest_url"]) == (BASE, manifest)


def test_each_client_gets_a_coding_that_it_accepts(site, tmp_path):
    root, files = site
    bundle = tmp_path / "site.wbn"
    created(bundle, "--dir", root, "--base-url", BASE, "--version", "b1", "--compress", "gzip,br,zstd")
    keys = {key for url, key in listed(bundle) if url == f"{BASE}app.js"}
    assert keys == {"gzip", "br", "zstd", "identity"}
    assert {key for url, key in listed(bundle) if url == f"{BASE}logo.png"} == {None}
    for accept, decode in [("br", brotli.decompress), ("gzip", gzip.decompress), ("compress", bytes), ("", bytes)]:
        got = run("get", bundle, f"{BASE}app.js", "-H", f"Accept-Encoding: {accept}")
        assert decode(got.stdout) == files["app.js"]


@pytest.mark.needs("node-wbn")
def test_wbn_reads_the_bundle_of_a_site(site, tmp_path):
    root, files = site
    created(tmp_path / "site.wbn", "--dir", root, "--base-url", BASE)
    with NodeProcess("bundles.mjs", "wbn") as wbn:
        found = wbn("read", bundle=base64.b64encode((tmp_path / "site.wbn").read_bytes()).decode())
    assert len(found["responses"]) == len(files) + 2


def har_entry(url, content, *, status=200, method="GET", headers=()):
    return {
        "startedDateTime": "2021-10-01T12:41:40.000Z",
        "request": {"method": method, "url": url, "headers": [{"name": "cookie", "value": "a=b"}]},
        "response": {
            "status": status,
            "headers": [{"name": name, "value": value} for name, value in headers],
            "content": content,
        },
    }


def test_a_har_becomes_a_bundle_of_the_recorded_page(tmp_path):
    html = {"size": 15, "mimeType": "text/html", "text": "<title>ж</title>"}
    headers = [("Content-Type", "text/html; charset=koi8-r"), ("Content-Encoding", "br"), ("Set-Cookie", "a=b")]
    image = {"size": 4, "mimeType": "image/png", "encoding": "base64", "text": "iVBORw=="}
    entries = [
        har_entry(BASE, html, headers=headers),
        har_entry(f"{BASE}a.png#x", image, headers=[("Content-Type", "image/png")]),
        har_entry(f"{BASE}api", html, method="POST"),
        har_entry(f"{BASE}old", {"size": 0, "mimeType": "x-unknown"}, status=301, headers=[("Location", "/")]),
        har_entry("data:,x", html),
    ]
    (tmp_path / "a.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    said = created(tmp_path / "a.wbn", "--har", tmp_path / "a.har", "--manifest-url", BASE)
    assert "not a GET request" in said
    assert "cookies or credentials" in said
    found = listed(tmp_path / "a.wbn")
    assert [url for url, _ in found] == [BASE, f"{BASE}a.png", f"{BASE}old"]
    assert found[BASE, None]["headers"] == {"content-type": "text/html; charset=utf-8"}
    assert run("get", tmp_path / "a.wbn", BASE).stdout.decode() == "<title>ж</title>"


class Crawled(BaseHTTPRequestHandler):
    """A site for a crawler: chunks, codings, a redirect and an error."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        links = b"".join(b'<a href="%b">x</a>' % name for name in [b"zip.html", b"old", b"none", b"a.png"])
        pages = {
            "/": (200, {"Content-Type": "text/html", "Set-Cookie": "a=b"}, links),
            "/zip.html": (200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, gzip.compress(b"packed")),
            "/old": (301, {"Location": "/a.png", "Content-Type": "text/plain"}, b""),
            "/a.png": (200, {"Content-Type": "image/png"}, bytes(range(256)) * 1_000),
        }
        status, headers, body = pages.get(self.path, (404, {"Content-Type": "text/html"}, b"<p>not here"))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(body), 10_000):
            part = body[start : start + 10_000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


@contextmanager
def crawled():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Crawled)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.needs("wget")
@pytest.mark.parametrize("packed", [True, False])
def test_a_warc_of_a_crawler_becomes_a_bundle(packed, tmp_path):
    words = ["wget", "-q", "-r", "-e", "robots=off", "--warc-file=a", "--compression=none", "--tries=1"]
    with crawled() as url:
        subprocess.run(
            [*words, *([] if packed else ["--no-warc-compression"]), url],
            cwd=tmp_path,
            timeout=programs.PATIENCE,
            check=False,
        )
    archive = tmp_path / ("a.warc.gz" if packed else "a.warc")
    created(tmp_path / "a.wbn", "--warc", archive, "--manifest-url", url)
    found = {address.removeprefix(url): line for (address, _), line in listed(tmp_path / "a.wbn").items()}
    statuses = {name: line["status"] for name, line in found.items()}
    assert statuses == {"": 200, "zip.html": 200, "old": 301, "none": 404, "a.png": 200}
    assert "set-cookie" not in found[""]["headers"]
    assert "content-encoding" not in found["zip.html"]["headers"]
    assert found["zip.html"]["payload_sha256"] == hashlib.sha256(b"packed").hexdigest()
    assert found["a.png"]["payload_sha256"] == hashlib.sha256(bytes(range(256)) * 1_000).hexdigest()


def test_a_large_archive_takes_little_memory(tmp_path):
    path = tmp_path / "a.warc"
    with path.open("wb") as file:
        for number in range(2):
            body = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nTransfer-Encoding: chunked\r\n\r\n"
            body += b"%x\r\n" % (100 * MEGABYTE)
            tail = b"\r\n0\r\n\r\n"
            length = len(body) + 100 * MEGABYTE + len(tail)
            file.write(b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: %b%d\r\n" % (BASE.encode(), number))
            file.write(b"Content-Length: %d\r\n\r\n%b" % (length, body))
            for _ in range(100):
                file.write(bytes(MEGABYTE))
            file.write(tail + b"\r\n\r\n")
    words = ("create", "--warc", path, "-o", tmp_path / "out.wbn")
    code, megabytes = programs.peak_memory(*PROGRAM, *words)
    assert code == 0
    assert megabytes < 64
    assert (tmp_path / "out.wbn").stat().st_size > 200 * MEGABYTE


def test_a_large_text_is_compressed_in_little_memory(tmp_path):
    (tmp_path / "site").mkdir()
    with (tmp_path / "site" / "a.txt").open("wb") as file:
        for number in range(64 * 1_000):
            file.write(b"%d " % number * 150)
    options = ("--version", "b1", "--manifest-url", BASE + "a.txt", "--compress", "gzip")
    words = ("create", "--dir", tmp_path / "site", "--base-url", BASE, *options, "-o", tmp_path / "out.wbn")
    code, megabytes = programs.peak_memory(*PROGRAM, *words)
    assert code == 0
    assert megabytes < 64
