"""The gateway against nginx with `limit_req`, and against the least that one in Python does: processor time.

One nginx, which answers 131 bytes from memory, is the origin of both. Every side has one process that works (nginx also
has an idle parent) and uses one core, and its processor time is what the system charged it with, user and system
together, divided by the requests made. wrk sends them over 32 kept connections; the heads are those of a browser, and
no two are alike (`browser_load`).

The least is a program on uvloop that passes bytes on to the origin, or one that answers all requests alike (`floor`).

Each round first proves that the origin's body, or a rejection with `Retry-After`, arrives; and afterwards that wrk saw
no error, and that the gatekeeper accepted what the origin received, or rejected what wrk sent.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from bench.browser_load import CONNECTIONS, load, write_script
from bench.measure import Absent, Row, verify
from tests import servers

BODY = "0123456789" * 13 + "\n"
SECONDS = 2
LOOPS = ("uvloop", "asyncio")
TARGETS = {
    ("proxied", "uvloop"): 1.6,
    ("proxied", "asyncio"): 2.1,
    ("rejected", "uvloop"): 2.5,
    ("rejected", "asyncio"): 3.5,
}
LOGGED = 1.15
"""Target for a proxied request with an access log, as a multiple of one without."""
FLOORS = {"proxied": ("bytes passed on, uvloop", 2.4), "rejected": ("fixed answer, uvloop", 3.0)}
Kind = Literal["proxied", "rejected"]

RULES: dict[Kind, str] = {"proxied": "1000000/s burst 1000", "rejected": "1/h burst 1"}

ORIGIN = "location / {{ default_type text/plain; return 200 '{body}'; }} location = /count {{ stub_status; }}"
LASTING = "keepalive_requests 1000000000; keepalive_timeout 300;"
UPSTREAM = "upstream origin {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 1000000000; }}"
ZONE = "limit_req_zone $binary_remote_addr zone=clients:10m rate={rate}; limit_req_log_level info;"
RATES = {"proxied": ("1000000r/s", "burst=1000000 nodelay"), "rejected": ("1r/m", "nodelay")}
PROXY = """
add_header Retry-After 60 always;
location / {{
    limit_req zone=clients {burst};
    proxy_pass http://origin;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header Forwarded 'for=$remote_addr;host="$http_host";proto=$scheme';
    proxy_set_header Via "1.1 nginx";
}}
"""


@dataclass(frozen=True)
class Side:
    """One reverse proxy: where it listens, its first process, and, of ours, the admin listener."""

    port: int
    pid: int
    admin: int = 0

    def pids(self) -> list[int]:
        """Return the process and its children."""
        return [self.pid, *map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]

    def cpu(self) -> float:
        """Return the processor time that all threads of its processes have had, in seconds."""
        threads = [thread for pid in self.pids() for thread in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def totals(self) -> tuple[int, int]:
        """Return how many requests the gatekeeper has accepted and rejected."""
        [domain] = json.loads(fetch(self.admin, "/api/state")[1])["domains"]
        return domain["accepted"], domain["rejected"]


def run(rounds: int) -> list[Row]:
    """Measure proxied and rejected requests, on both event loops."""
    for program in ("nginx", "wrk"):
        if servers.find_program(program) is None:
            raise Absent(f"{program} is not installed")
    loops = [loop for loop in LOOPS if importlib.util.find_spec(loop) is not None]
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        (folder / "origin").mkdir()
        directives = ORIGIN.format(body=BODY.replace("\n", "\\n"))
        origin = running.enter_context(servers.nginx(folder / "origin", server=directives, http=LASTING)).port
        found = []
        for kind in RULES:
            sides = {"nginx": running.enter_context(nginx(folder / kind, kind, origin))}
            for loop in loops:
                sides[loop] = running.enter_context(gate(folder / kind, kind, loop, origin))
            if "uvloop" in loops:
                sides["floor"] = running.enter_context(floor(origin if kind == "proxied" else 0))
                if kind == "proxied":
                    log = f'[log]\naccess = "{folder / "access.log"}"\n'
                    (folder / "logged").mkdir()
                    sides["logged"] = running.enter_context(gate(folder / "logged", kind, "uvloop", origin, log))
            found += measured(kind, sides, origin, write_script(folder / kind / "load.lua"), rounds)
        return found


@contextmanager
def nginx(folder: Path, kind: Kind, origin: int) -> Iterator[Side]:
    """Run nginx before the origin."""
    folder.mkdir()
    rate, burst = RATES[kind]
    http = LASTING + UPSTREAM.format(port=origin) + ZONE.format(rate=rate)
    with servers.nginx(folder, server=PROXY.format(burst=burst), http=http) as peer:
        yield Side(peer.port, peer.process.pid)


@contextmanager
def gate(folder: Path, kind: Kind, loop: str, origin: int, log: str = "") -> Iterator[Side]:
    """Run `headgate serve` before the origin, on one of the event loops; `log` is a table of its configuration."""
    port, admin = servers.free_port(), servers.free_port()
    settings = folder / f"{loop}.toml"
    settings.write_text(
        f'[gate]\norigin = "http://127.0.0.1:{origin}"\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{admin}"\n'
        f'loop = "{loop}"\n{log}[[domain]]\nname = "default"\nrules = ["{RULES[kind]}"]\n'
    )
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(settings)]
    with servers.started(command, port, folder) as started:
        yield Side(port, started.process.pid, admin)


@contextmanager
def floor(origin: int) -> Iterator[Side]:
    """Run the program that does the least: before the origin, or with 0 without one."""
    command = [sys.executable, "-m", "bench.floor", str(origin)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Side(int(process.stdout.readline()), process.pid)
        finally:
            process.terminate()


def fetch(port: int, path: str = "/") -> tuple[int, str, str]:
    """Fetch a page from a port of this machine; returns status, body and Retry-After."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
            return response.status, response.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("Retry-After", "")


def received(origin: int) -> int:
    """Return how many requests the origin has received, this question included."""
    counts = re.search(r"requests\n \d+ \d+ (\d+)", fetch(origin, "/count")[1])
    verify("the origin reports how many requests it received", right=counts is not None)
    return int(counts[1]) if counts else 0


def settle(side: Side) -> None:
    """Wait until the requests that wrk left behind are through, for at most a second."""
    before = -1.0
    for _ in range(20):
        now = side.cpu()
        if now == before:
            return
        before = now
        time.sleep(0.05)


def microseconds_each(kind: Kind, side: Side, origin: int, script: Path) -> float:
    """Return the microseconds of processor time that one request costs, over some seconds of requests."""
    fetch(side.port)  # the only one that the rule of the rejecting side lets through
    status, body, retry_after = fetch(side.port)
    if kind == "proxied":
        verify("the origin's body arrives", right=(status, body) == (200, BODY))
    else:
        verify("a request is rejected, with Retry-After", right=status == 503 and retry_after.isdigit())
    counts, arrived = side.totals() if side.admin else (0, 0), received(origin)
    before = side.cpu()
    result = load(side.port, script, seconds=SECONDS)
    spent = side.cpu() - before
    settle(side)
    arrived = received(origin) - arrived - 1
    verify(
        "wrk saw no rejection, or nothing else", right=result.refused == (0 if kind == "proxied" else result.requests)
    )
    if side.admin:
        accepted, rejected = (after - count for after, count in zip(side.totals(), counts, strict=True))
        verify("the gatekeeper accepted what the origin received", right=accepted == arrived)
        # wrk does not count the requests under way when it ends.
        decided = accepted if kind == "proxied" else rejected
        verify("the gatekeeper decided on every request", right=0 <= decided - result.requests <= CONNECTIONS)
    return spent / result.requests * 1e6


def measured(kind: Kind, sides: dict[str, Side], origin: int, script: Path, rounds: int) -> list[Row]:
    """Measure the sides in turns, another one first in each round, and compare ours with nginx."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(microseconds_each(kind, sides[name], origin, script))
    rows = [
        row(kind, loop, figures, "nginx", ("nginx, limit_req", TARGETS[kind, loop]))
        for loop in LOOPS
        if loop in figures
    ]
    if "floor" in figures:
        rows.append(row(kind, "uvloop", figures, "floor", FLOORS[kind]))
    if "logged" in figures:
        rows.append(row(kind, "logged", figures, "uvloop", ("without access log, uvloop", LOGGED)))
    return rows


def row(kind: Kind, loop: str, figures: dict[str, list[float]], peer: str, target: tuple[str, float]) -> Row:
    """Compare the gate on one event loop with a peer: the median of each round's own ratio."""
    ratio = median(ours / theirs for ours, theirs in zip(figures[loop], figures[peer], strict=True))
    context = f"{median(figures[loop]):.1f} µs against {median(figures[peer]):.1f} µs"
    loop = "uvloop with an access log" if loop == "logged" else loop
    return Row(f"gateway on {loop}, CPU per {kind} request", target[0], ratio, "≤", target[1], context)
