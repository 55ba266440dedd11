"""The gateway against nginx with `limit_req`, and against the least that one in Python does: processor time.

One nginx, which answers 131 bytes from memory, is the origin of both. Every side has one process that works (nginx also
has an idle parent) and uses one core, and its processor time is what the system charged it with, user and system
together, divided by the requests made. wrk sends them over 32 kept connections; the heads are those of a browser, and
no two are alike (`browser_load`).

The least is a program on uvloop that passes bytes on to the origin, or one that answers all requests alike (`floor`).

Each round first proves that the origin's body, or a rejection with `Retry-After`, arrives; and afterwards that wrk saw
no error, and that the gatekeeper accepted what the origin received, or rejected what wrk sent.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from bench.browser_load import CONNECTIONS, LASTING, Side, fetch, gate, load, origin, verify_answer, write_script
from bench.measure import Row, compared, in_turns, need, verify
from tests import servers

Kind = Literal["proxied", "rejected"]
RULES: dict[Kind, str] = {"proxied": "1000000/s burst 1000", "rejected": "1/h burst 1"}
BOUNDS: list[tuple[Kind, str, str, str, str, float]] = [
    ("proxied", "uvloop", "uvloop", "nginx", "nginx, limit_req", 1.6),
    ("proxied", "asyncio", "asyncio", "nginx", "nginx, limit_req", 2.1),
    ("proxied", "uvloop", "uvloop", "floor", "bytes passed on, uvloop", 2.4),
    ("proxied", "uvloop with an access log", "logged", "uvloop", "without access log, uvloop", 1.15),
    ("rejected", "uvloop", "uvloop", "nginx", "nginx, limit_req", 2.5),
    ("rejected", "asyncio", "asyncio", "nginx", "nginx, limit_req", 3.5),
    ("rejected", "uvloop", "uvloop", "floor", "fixed answer, uvloop", 3.0),
]
"""What our side is called, the two sides that are compared, what the other one is called, and the greatest ratio."""
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


def run(rounds: int) -> list[Row]:
    """Measure proxied and rejected requests, on both event loops."""
    need("nginx", "wrk")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        origin_port = running.enter_context(origin(folder / "origin"))
        return [row for kind in RULES for row in measured(kind, folder / kind, origin_port, rounds)]


def measured(kind: Kind, folder: Path, origin_port: int, rounds: int) -> list[Row]:
    """Measure all sides of one kind."""
    rule = f'[[domain]]\nname = "default"\nrules = ["{RULES[kind]}"]\n'
    log = f'[log]\naccess = "{folder / "access.log"}"\n'
    tables = {"uvloop": rule, "asyncio": rule, **({"logged": log + rule} if kind == "proxied" else {})}
    with ExitStack() as running:
        sides = {"nginx": running.enter_context(nginx(folder, kind, origin_port))}
        for name, text in tables.items():
            loop = "asyncio" if name == "asyncio" else "uvloop"
            sides[name] = running.enter_context(gate(folder / name, origin_port, f'loop = "{loop}"\n{text}'))
        sides["floor"] = running.enter_context(floor(origin_port if kind == "proxied" else 0))
        script = write_script(folder / "load.lua")
        figures = in_turns(
            {name: partial(microseconds_each, kind, side, origin_port, script) for name, side in sides.items()}, rounds
        )
    return [
        compared(
            f"gateway on {what}, CPU per {kind} request", figures[ours], ("≤", most), (peer, figures[theirs]), "µs"
        )
        for of, what, ours, theirs, peer, most in BOUNDS
        if of == kind
    ]


@contextmanager
def nginx(folder: Path, kind: Kind, origin: int) -> Iterator[Side]:
    """Run nginx before the origin."""
    folder.mkdir()
    rate, burst = RATES[kind]
    http = LASTING + UPSTREAM.format(port=origin) + ZONE.format(rate=rate)
    with servers.nginx(folder, server=PROXY.format(burst=burst), http=http) as peer:
        yield Side(peer.port, peer.process.pid)


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


def received(origin: int) -> int:
    """Return how many requests the origin has received, this question included."""
    counts = re.search(r"requests\n \d+ \d+ (\d+)", fetch(origin, "/count")[1])
    verify("the origin reports how many requests it received", right=counts is not None)
    return int(counts[1]) if counts else 0


def microseconds_each(kind: Kind, side: Side, origin_port: int, script: Path) -> float:
    """Return the microseconds of processor time that one request costs, over some seconds of requests."""
    is_refused = kind == "rejected"
    fetch(side.port)  # the only one that the rule of the rejecting side lets through
    verify_answer(side, refused=is_refused)
    before, arrived = totals(side), received(origin_port)
    requests, cost = load(side, script, refused=is_refused)
    arrived = received(origin_port) - arrived - 1
    if side.admin:
        accepted, rejected = (after - count for after, count in zip(totals(side), before, strict=True))
        verify("the gatekeeper accepted what the origin received", right=accepted == arrived)
        # wrk does not count the requests under way when it ends.
        decided = rejected if is_refused else accepted
        verify("the gatekeeper decided on every request", right=0 <= decided - requests <= CONNECTIONS)
    return cost


def totals(side: Side) -> tuple[int, int]:
    """Return how many requests the gatekeeper has accepted and rejected."""
    [domain] = side.state()["domains"] if side.admin else [{"accepted": 0, "rejected": 0}]
    return domain["accepted"], domain["rejected"]
