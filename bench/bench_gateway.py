"""The gateway against nginx as a reverse proxy: processor time per proxied request, the decision included.

One nginx, which answers 131 bytes from memory, is the origin of both; wrk asks over 32 connections that stay open. Each
side is one process on one core with its connections to the origin kept, and its processor time is what the system
charged it with, user and system together, divided by the requests made. Twice: every agent repeats one small head, as
programs do, and every request has a head of its own of the size that browsers send, so that nothing can be remembered.

Each round proves first that what arrives is the origin's body, and afterwards that wrk saw no error and that the
gatekeeper let exactly those requests through that the origin was asked.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which

from bench.measure import Absent, Row, compare, verify
from tests import servers

__all__ = ["run"]

BODY = "0123456789" * 13 + "\n"
CONNECTIONS = 32
SECONDS = 3
RULE = "1000000/s burst 1000"
ORIGIN = "location / {{ default_type text/plain; return 200 '{body}'; }} location = /count {{ stub_status; }}"
LASTING = "keepalive_requests 1000000000; keepalive_timeout 300;"
UPSTREAM = "upstream origin {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 1000000000; }}"
PROXY = """
location / {
    proxy_pass http://origin;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header Forwarded 'for=$remote_addr;host="$http_host";proto=$scheme';
    proxy_set_header Via "1.1 nginx";
}
"""
BROWSERS = """
local number = 0
local fields = {
    ["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    ["Accept"] = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ["Accept-Language"] = "en-US,en;q=0.5",
    ["Accept-Encoding"] = "gzip, deflate, br",
}
request = function()
    number = number + 1
    fields["Cookie"] = "session=" .. number
    return wrk.format("GET", "/item/" .. number .. "?q=" .. number, fields)
end
"""


@dataclass(frozen=True)
class Side:
    """One reverse proxy: where it listens, and the process that does the work."""

    port: int
    pid: int

    def cpu(self) -> float:
        """Give the seconds of processor time it has had."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(rounds: int) -> list[Row]:
    """Measure both ways of asking."""
    for program in ("nginx", "wrk"):
        if which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin") is None:
            raise Absent(f"{program} is not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        (folder / "origin").mkdir()
        directives = ORIGIN.format(body=BODY.replace("\n", "\\n"))
        origin = running.enter_context(servers.nginx(folder / "origin", server=directives, http=LASTING)).port
        upstream = LASTING + UPSTREAM.format(port=origin)
        peer = running.enter_context(servers.nginx(folder, server=PROXY, http=upstream))
        nginx = Side(peer.port, worker_of(peer.process.pid))
        ours = running.enter_context(gate(folder, origin))
        browsers = folder / "browsers.lua"
        browsers.write_text(BROWSERS)
        return [
            row("gateway CPU per request", ours, nginx, origin=origin, script=None, rounds=rounds),
            row(
                "gateway CPU per request, all heads differ", ours, nginx, origin=origin, script=browsers, rounds=rounds
            ),
        ]


@contextmanager
def gate(folder: Path, origin: int) -> Iterator["Gate"]:
    """Run `headgate serve` before the origin."""
    port, admin = servers.free_port(), servers.free_port()
    listeners = ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
    command = [sys.executable, "-m", "headgate", "serve", "--origin", f"http://127.0.0.1:{origin}", "--rule", RULE]
    with servers.started([*command, *listeners], port, folder) as started:
        yield Gate(port, started.process.pid, admin)


@dataclass(frozen=True)
class Gate(Side):
    """Ours, which can say what it decided."""

    admin: int

    def totals(self) -> dict[str, int]:
        """Ask the admin listener for the totals of the one domain."""
        state = json.loads(fetched(self.admin, "/api/state"))
        [domain] = state["domains"]
        return {word: domain[word] for word in ("accepted", "delayed", "rejected")}


def worker_of(master: int) -> int:
    """Find the one worker of an nginx."""
    return int(Path(f"/proc/{master}/task/{master}/children").read_text().split()[0])


def fetched(port: int, path: str = "/") -> str:
    """Fetch a page from a port of this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
        return str(response.read().decode())


def asked(origin: int) -> int:
    """Ask the origin how many requests it has had; that question is one of them."""
    counts = re.search(r"requests\n \d+ \d+ (\d+)", fetched(origin, "/count"))
    verify("the origin tells how many requests it had", right=counts is not None)
    return int(counts[1]) if counts else 0


def microseconds_each(side: Side, script: Path | None) -> float:
    """Give the microseconds of processor time that one request costs, over some seconds of requests."""
    verify("the origin's body arrives", right=fetched(side.port) == BODY)
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", *(["-s", str(script)] if script else [])]
    before = side.cpu()
    output = subprocess.run(
        [*words, f"http://127.0.0.1:{side.port}/"], capture_output=True, text=True, check=True
    ).stdout
    spent = side.cpu() - before
    made = re.search(r"(\d+) requests in", output)
    wrong = "Non-2xx" in output or "Socket errors" in output
    verify("wrk made requests and saw no error", right=made is not None and not wrong)
    return spent / int(made[1]) * 1e6 if made else 0.0


def counted(gate: Gate, origin: int, script: Path | None) -> float:
    """Measure ours, and prove that every request was decided on."""
    before, asked_before = gate.totals(), asked(origin)
    figure = microseconds_each(gate, script)
    after, asked_after = gate.totals(), asked(origin) - 1
    accepted = after["accepted"] - before["accepted"]
    verify("the gatekeeper accepted what the origin was asked", right=accepted == asked_after - asked_before)
    verify("the gatekeeper held nobody", right=not after["delayed"] and not after["rejected"])
    return figure


def row(what: str, ours: Gate, nginx: Side, *, origin: int, script: Path | None, rounds: int) -> Row:
    """Compare the two, in turns."""
    found = compare(partial(counted, ours, origin, script), partial(microseconds_each, nginx, script), rounds=rounds)
    context = f"{found.ours:.1f} µs against {found.peer:.1f} µs"
    return Row(what, "nginx reverse proxy", found.ratio, "≤", 2.0, context)
