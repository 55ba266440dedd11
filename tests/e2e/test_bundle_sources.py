"""Sources into bundles with the whole command: what a browser saved, a site on disk."""

import hashlib
import json
import subprocess
import sys

import pytest

from tests.e2e import programs

BASE = "https://example.com/"
PROGRAM = [sys.executable, "-m", "headgate", "bundle"]
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
    assert run("check", tmp_path / "site.wbn").returncode == 0
    info = json.loads(run("info", tmp_path / "site.wbn", "--json").stdout)
    assert (info["primary_url"], info["manifest_url"]) == (BASE, manifest)


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
