"""The load of the benchmarks of gateway and middleware, heads such as browsers send, and the servers that get it.

wrk sends them: path, query and cookie have the number of the request, so that a cache keyed by a whole head never hits.
"""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import verify
from tests import servers

CONNECTIONS = 32
"""Kept connections, each with one request at a time."""

HEAD = (
    "GET /shop/item/%d/details?ref=search&query=%d&page=3 HTTP/1.1\r\n"
    "Host: shop.example:8080\r\n"
    "Connection: keep-alive\r\n"
    'sec-ch-ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"\r\n'
    "sec-ch-ua-mobile: ?0\r\n"
    'sec-ch-ua-platform: "Linux"\r\n'
    "Upgrade-Insecure-Requests: 1\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 "
    "Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n"
    "Sec-Fetch-Site: same-origin\r\n"
    "Sec-Fetch-Mode: navigate\r\n"
    "Sec-Fetch-User: ?1\r\n"
    "Sec-Fetch-Dest: document\r\n"
    "Referer: http://shop.example:8080/shop/search?query=lamp\r\n"
    "Accept-Encoding: gzip, deflate, br, zstd\r\n"
    "Accept-Language: en-US,en;q=0.9\r\n"
    "Cache-Control: max-age=0\r\n"
    "Cookie: session=%032d; theme=dark; consent=1\r\n"
    "%s\r\n"
)
"""A request head of about 830 bytes; takes the request's number three times, and more field lines."""

SCRIPT = """
local number = 0
local head = {head}
request = function()
    number = number + 1
    return string.format(head, number, number, number, {more})
end
"""
SECONDS = 2
BODY = "0123456789" * 13 + "\n"
LASTING = "keepalive_requests 1000000000; keepalive_timeout 300;"
_ORIGIN = "location / {{ default_type text/plain; return 200 '{}'; }} location = /count {{ stub_status; }}"


@dataclass(frozen=True)
class Side:
    """A server under load: where it listens, its first process, and, of a gate, the admin listener."""

    port: int
    pid: int
    admin: int = 0

    def cpu(self) -> float:
        """Return the processor time that all threads of the process and its children have had, in seconds."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        threads = [thread for pid in (self.pid, *children) for thread in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def state(self) -> Any:
        """Return the state that the admin listener of a gate shows."""
        return json.loads(fetch(self.admin, "/api/state")[1])


@contextmanager
def origin(folder: Path) -> Iterator[int]:
    """Run nginx, which answers from memory; give its port."""
    folder.mkdir()
    with servers.nginx(folder, server=_ORIGIN.format(BODY.replace("\n", "\\n")), http=LASTING) as server:
        yield server.port


@contextmanager
def gate(folder: Path, origin_port: int, settings: str) -> Iterator[Side]:
    """Run `headgate serve` before an origin; the settings begin with keys of `gate`."""
    folder.mkdir()
    port, admin = servers.free_port(), servers.free_port()
    file = folder / "headgate.toml"
    listen = f'listen = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{admin}"\n'
    file.write_text(f'[gate]\norigin = "http://127.0.0.1:{origin_port}"\n{listen}{settings}')
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(file)]
    with servers.started(command, port, folder) as started:
        yield Side(port, started.process.pid, admin)


def fetch(port: int, path: str = "/", **fields: str) -> tuple[int, str, str]:
    """Fetch a page from a port of this machine; returns status, body and Retry-After."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=fields)
        ) as response:
            return response.status, response.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("Retry-After", "")


def verify_answer(side: Side, *, refused: bool, **fields: str) -> None:
    """Verify that the body arrives, or a rejection with Retry-After."""
    status, body, retry_after = fetch(side.port, **fields)
    right = (status == 503 and retry_after.isdigit()) if refused else (status, body) == (200, BODY)
    verify("a request is rejected, with Retry-After" if refused else "the body arrives", right=right)


def write_script(path: Path, *, more: str = '""') -> Path:
    """Write wrk's script to `path`; `more` is a Lua expression for more field lines, which may use `number`."""
    quoted = '"' + HEAD.replace("\\", "\\\\").replace('"', '\\"').replace("\r\n", "\\r\\n") + '"'
    path.write_text(SCRIPT.format(head=quoted, more=more))
    return path


def load(side: Side, script: Path, *, refused: bool, passed: int = 0) -> tuple[int, float]:
    """Send requests for some seconds as fast as responses arrive; return their number, and the CPU time of each in µs.

    All must be refused, except `passed`, or none.
    """
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--timeout", "10s", "-s", str(script)]
    before = side.cpu()
    done = subprocess.run([*command, f"http://127.0.0.1:{side.port}/"], capture_output=True, text=True, check=True)
    spent = side.cpu() - before
    made = re.search(r"(\d+) requests in", done.stdout)
    others = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    errors = re.search(r"Socket errors: (.*)", done.stdout)
    verify(f"no socket errors ({errors[1] if errors else 'none'})", right=made is not None and errors is None)
    assert made is not None
    requests, rejected = int(made[1]), int(others[1]) if others else 0
    verify("wrk saw refusals only, or none", right=requests - rejected <= passed if refused else rejected == 0)
    _settle(side)
    return requests, spent / requests * 1e6


def _settle(side: Side) -> None:
    """Wait until the requests that wrk left behind are through, for at most a second."""
    before = -1.0
    for _ in range(20):
        now = side.cpu()
        if now == before:
            return
        before = now
        time.sleep(0.05)
