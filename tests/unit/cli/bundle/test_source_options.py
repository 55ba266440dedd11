"""headgate.cli.bundle.source_options: bundles at a URL."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

BASE = "https://example.com/"
SERVED = {"Content-Type": "application/webbundle", "X-Content-Type-Options": "nosniff"}


class Server:
    """Serves one bundle; `requests` has the Range of each request."""

    def __init__(self, content, headers):
        self.requests = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                server.requests.append(self.headers.get("Range"))
                part, status = content, 200
                if found:
                    part, status = content[int(found[1]) : int(found[2]) + 1], 206
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if found:
                    end = int(found[1]) + len(part) - 1
                    self.send_header("Content-Range", f"bytes {found[1]}-{end}/{len(content)}")
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                self.wfile.write(part)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/site.wbn"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve():
    servers = []

    def start(content, headers=SERVED):
        servers.append(Server(content, headers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def site(make):
    return make({BASE: b"home", BASE + "large": b"x" * 300_000, BASE + "last": b"last"})


def test_info_and_get_read_ranges(run, serve, site):
    server = serve(site.read_bytes())
    assert run("info", server.url, "--json").json == run("info", site, "--json").json
    assert server.requests == ["bytes=0-65535"]
    server.requests.clear()
    assert run("get", server.url, "/last").out == b"last"
    assert len(server.requests) == 2
    assert None not in server.requests


def test_other_commands_fetch_the_bundle_once(run, serve, site, tmp_path):
    server = serve(site.read_bytes())
    assert run("list", server.url, "--json").objects == run("list", site, "--json").objects
    assert run("lint", server.url).code == 0
    assert run("convert", server.url, "--version", "b2", "-o", tmp_path / "new.wbn").code == 0
    assert server.requests == [None] * 3


def test_bundles_served_as_another_type_need_profile_compat(run, serve, site):
    server = serve(site.read_bytes(), {"Content-Type": "application/octet-stream"})
    for command in (["info", server.url], ["list", server.url]):
        result = run(*command)
        assert (result.code, result.out) == (1, b"")
        assert "expected Content-Type application/webbundle, got 'application/octet-stream'" in result.err
        assert run(*command, "--profile", "compat").code == 0


def test_a_bundle_at_a_url_is_not_rewritten(run, serve, site):
    result = run("integrity", "add", serve(site.read_bytes()).url, "--key", "key.pem")
    assert result.code == 2
    assert "missing option '-o'; a bundle at a URL cannot be rewritten" in result.err
