"""Bundles over real HTTP: `headgate bundle serve`, and the ASGI application in the servers people use."""

import hashlib
import http.client
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import webbundles
from tests.e2e import programs
from tests.servers import free_port
from tests.webbundles import BIG, HTML, PAGE

EXCHANGES: tuple[dict[str, Any], ...] = (
    {"url": "/", "payload": PAGE},
    {"url": "/big", "headers": {"content-type": "text/plain"}, "payload": BIG},
    *(
        {
            "url": "/v",
            "variants": "Accept-Encoding;gzip;identity",
            "variant_key": key,
            "headers": HTML | ({} if key == "identity" else {"content-encoding": key}),
            "payload": key.encode(),
        }
        for key in ("gzip", "identity")
    ),
    {
        "url": "/smuggler",
        "headers": HTML | {"transfer-encoding": "chunked", "content-length": "99", "connection": "close"},
        "payload": b"5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    },
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return webbundles.write(tmp_path / "site.wbn", *EXCHANGES)


# As a program


@contextmanager
def serving(folder, *arguments):
    """Run `headgate bundle serve` on a port the system chooses; gives it with the URL that is ready."""
    command = ["bundle", "serve", "--listen", "127.0.0.1:0", *arguments]
    with programs.headgate(folder, *command) as running:
        url = running.wait_for(r"^ready (http://127\.0\.0\.1:[1-9]\d*)/(\S*)$")
        yield running, url[1], url[2]


def ask(base, path, method="GET", **fields):
    connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=programs.PATIENCE)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in fields.items()})
        answer = connection.getresponse()
        answer.body = answer.read()
        return answer
    finally:
        connection.close()


def curl(*arguments):
    command = ["curl", "-sS", "--max-time", "20", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=30, check=False)


def test_bundle_is_at_its_name_and_at_the_root(tmp_path, site):
    whole = site.read_bytes()
    with serving(tmp_path, site) as (running, base, name):
        assert name == "site.wbn"
        for path in ("/site.wbn", "/"):
            answer = ask(base, path)
            assert (answer.status, answer.body) == (200, whole)
            assert answer.headers["Content-Type"] == "application/webbundle;v=b1"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Accept-Ranges"] == "bytes"
        assert ask(base, "/other").status == 404
        assert ask(base, "/", method="POST").headers["Allow"] == "GET, HEAD"
        assert ask(base, "/", method="TRACE").headers["Allow"] == "GET, HEAD"
        head = ask(base, "/", method="HEAD")
        assert (head.body, head.headers["Content-Length"]) == (b"", str(len(whole)))
        assert ask(base, "/", If_None_Match=head.headers["ETag"]).status == 304
        assert ask(base, "/", If_Modified_Since=head.headers["Last-Modified"]).status == 304
        assert running.end() == 0
        assert running.said().count("\n") == 3  # ready, draining, stopped


def test_unpack_serves_the_site_inside(tmp_path, site):
    with serving(tmp_path, site, "--unpack") as (_, base, _):
        assert ask(base, "/").body == PAGE
        identity = ask(base, "/v", Accept_Encoding="identity")
        assert (identity.body, identity.headers["Vary"]) == (b"identity", "Accept-Encoding")
        smuggler = ask(base, "/smuggler")
        assert smuggler.body == EXCHANGES[-1]["payload"]
        assert smuggler.headers["Transfer-Encoding"] is None
        assert ask(base, "/site.wbn").body == site.read_bytes()


def test_a_download_continues_from_the_bundle_it_started_with(tmp_path, site):
    whole = site.read_bytes()
    with serving(tmp_path, site) as (running, base, name):
        connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=programs.PATIENCE)
        connection.request("GET", f"/{name}")
        answer = connection.getresponse()
        beginning = answer.read(1000)
        webbundles.write(tmp_path / "new.wbn").rename(site)
        running.until(lambda: len(ask(base, "/").body) < 1000, "new bundle")
        assert beginning + answer.read() == whole
        connection.close()


def test_memory_does_not_grow_with_the_file(tmp_path):
    large = webbundles.write(tmp_path / "large.wbn", {"url": "/", "payload": BIG * 16})
    with serving(tmp_path, large) as (running, base, name):

        def peak():
            status = Path(f"/proc/{running.process.pid}/status").read_text()
            return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])

        before = peak()
        assert hashlib.sha256(ask(base, f"/{name}").body).digest() == hashlib.sha256(large.read_bytes()).digest()
        slow = []
        for _ in range(20):
            slow.append(socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2]))))
            slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert slow[-1].recv(16)
        assert ask(base, "/other").status == 404
        for one in slow:
            one.close()
        assert peak() - before < 16 * 1024


# As an application


APP = """\
from headgate.origin.bundle import BundleApp
app = BundleApp("site.wbn")
site = BundleApp("site.wbn", unpack=True)
"""
SERVERS = {
    "uvicorn": ("uvicorn", "--log-level", "warning", "--port"),
    "uvicorn-h11": ("uvicorn", "--http", "h11", "--log-level", "warning", "--port"),
    "granian": ("granian", "--interface", "asgi", "--no-log", "--port"),
}


@pytest.mark.parametrize("server", SERVERS)
def test_the_application_runs_in_real_servers(tmp_path, site, start, server, monkeypatch):
    (tmp_path / "served.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program, *options = SERVERS[server]
    whole = site.read_bytes()
    for name in ("app", "site"):
        port = free_port()
        running = start([Path(sys.executable).parent / program, *options, str(port), f"served:{name}"], port)
        if name == "app":
            answer = ask(running.url, "/site.wbn")
            assert (answer.status, answer.body) == (200, whole)
            assert answer.headers["Content-Type"] == "application/webbundle;v=b1"
            part = ask(running.url, "/", Range="bytes=5-1000004", If_Range=answer.headers["ETag"])
            assert (part.status, part.body) == (206, whole[5:1_000_005])
            assert part.headers["Content-Range"] == f"bytes 5-1000004/{len(whole)}"
            assert ask(running.url, "/", If_None_Match=answer.headers["ETag"]).status == 304
            assert (
                ask(running.url, "/", Range=f"bytes={len(whole)}-").headers["Content-Range"] == f"bytes */{len(whole)}"
            )
        else:
            assert ask(running.url, "/").body == PAGE
            assert ask(running.url, "/big").body == BIG
            assert ask(running.url, "/v", Accept_Encoding="gzip").headers["Content-Encoding"] == "gzip"
            assert ask(running.url, "/smuggler").body == EXCHANGES[-1]["payload"]
        head = ask(running.url, "/", method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert int(head.headers["Content-Length"]) == len(whole if name == "app" else PAGE)
        assert ask(running.url, "/none").status == 404
        assert ask(running.url, "/", method="DELETE").headers["Allow"] == "GET, HEAD"
        assert "Traceback" not in running.output()
