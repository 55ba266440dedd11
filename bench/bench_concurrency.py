"""The concurrency limit of the gate: the processor time of a proxied request and of a rejection.

Every side is one process on a core of its own, where there are two. wrk sends the heads of a browser over 32 kept
connections (`browser_load`). Proxied requests: a gate with a learned limit that rejects nothing, against one without;
nginx answers 131 bytes from memory. Rejections: a gate whose only permit is taken, against nginx with
`limit_conn 1` in the same state. Each round first proves that the origin's body, or a rejection, arrives.
"""

import http.client
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.bench_gateway import BODY, LASTING, ORIGIN, Side, fetch, settle
from bench.bench_middleware import cores
from bench.browser_load import load, write_script
from bench.measure import Absent, Row, verify
from tests import servers

SECONDS = 2
PAIRS_A_ROUND = 2
RULE = '[[domain]]\nname = "default"\nrules = ["1000000/s burst 1000"]\n'
LIMITS = {"without": "", "learned": '[limit.concurrency]\nmax = "learned"\nhealthy_latency = 1\n'}
FULL = "[limit.concurrency]\nmax = 1\nqueue = 0\n"
PROXIED_TARGET = 1.1
REFUSED_TARGET = 2.5
FULL_PEER = "limit_conn all 1; location / {{ add_header Retry-After 60 always; proxy_pass http://127.0.0.1:{port}; }}"
ZONE = "limit_conn_zone $server_port zone=all:1m; limit_conn_log_level info; proxy_read_timeout 1d;"


def run(rounds: int) -> list[Row]:
    """Measure proxied requests and refusals."""
    for program in ("nginx", "wrk", "taskset"):
        if servers.find_program(program) is None:
            raise Absent(f"{program} is not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        (folder / "origin").mkdir()
        directives = ORIGIN.format(body=BODY.replace("\n", "\\n"))
        origin = running.enter_context(servers.nginx(folder / "origin", server=directives, http=LASTING)).port
        return proxied(folder, origin, rounds) + refused(folder, rounds)


def proxied(folder: Path, origin: int, rounds: int) -> list[Row]:
    """Measure proxied requests with and without a limit."""
    with ExitStack() as running:
        sides = {name: running.enter_context(gate(folder, origin, RULE + text, name)) for name, text in LIMITS.items()}
        script = write_script(folder / "load.lua")

        def cost(side: Side) -> float:
            verify("the origin's body arrives", right=fetch(side.port)[:2] == (200, BODY))
            return microseconds_each(side, script, expect_refusals=False)

        figures = in_turns({name: partial(cost, side) for name, side in sides.items()}, rounds)
        check_limit(sides["learned"])
    peer = "the gate without", "without"
    return [row("gate with a learned limit, CPU per proxied request", peer, "learned", figures, PROXIED_TARGET)]


def refused(folder: Path, rounds: int) -> list[Row]:
    """Measure rejections."""
    with ExitStack() as running:
        stuck = running.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]  # never answers
        full = running.enter_context(gate(folder, stuck, FULL, "full"))
        server = running.enter_context(servers.nginx(folder, server=FULL_PEER.format(port=stuck), http=LASTING + ZONE))
        peer = pinned(Side(server.port, server.process.pid))
        for side in (full, peer):
            holder = running.enter_context(socket.create_connection(("127.0.0.1", side.port)))
            holder.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        script = write_script(folder / "kept.lua")

        def refusals(side: Side) -> float:
            check_refusals(side)
            return microseconds_each(side, script, expect_refusals=True)

        figures = in_turns({"nginx": partial(refusals, peer), "gate": partial(refusals, full)}, rounds)
    return [row("gate, CPU per rejection", ("nginx, limit_conn", "nginx"), "gate", figures, REFUSED_TARGET)]


@contextmanager
def gate(folder: Path, origin: int, text: str, name: str) -> Iterator[Side]:
    """Run `headgate serve` before the origin, with these tables."""
    port, admin = servers.free_port(), servers.free_port()
    settings = folder / f"{name}.toml"
    settings.write_text(
        f'[gate]\norigin = "http://127.0.0.1:{origin}"\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{admin}"\n'
        f"[gate.timeouts]\nresponse = 86400\n{text}"
    )
    command = [sys.executable, "-m", "headgate", "serve", "--config", str(settings)]
    with servers.started(command, port, folder) as started:
        yield pinned(Side(port, started.process.pid, admin))


def pinned(side: Side) -> Side:
    """Let the processes of a side run on the core of the sides only."""
    for pid in side.pids():
        os.sched_setaffinity(pid, cores()[0])
    return side


def microseconds_each(side: Side, script: Path, *, expect_refusals: bool) -> float:
    """Return the microseconds of processor time that one request costs, over some seconds of requests."""
    clients = ",".join(map(str, cores()[1]))
    before = side.cpu()
    result = load(side.port, script, seconds=SECONDS, prefix=("taskset", "--cpu-list", clients))
    spent = side.cpu() - before
    settle(side)
    verify("wrk saw refusals only, or none", right=result.refused == (result.requests if expect_refusals else 0))
    return spent / result.requests * 1e6


def check_refusals(side: Side) -> None:
    """Verify that requests on one connection are refused, and that it is kept."""
    with closing(http.client.HTTPConnection("127.0.0.1", side.port, timeout=10)) as client:
        for _ in range(2):
            client.request("GET", "/")
            with client.getresponse() as response:
                refuses = response.status == 503 and response.headers["Retry-After"].isdigit()
                verify("a request is refused, with Retry-After", right=refuses)
                verify("the connection is kept", right=response.read() != b"" and not response.will_close)


def check_limit(side: Side) -> None:
    """Verify that a limit was in force and refused nothing."""
    state = json.loads(fetch(side.admin, "/api/state")[1])["concurrency"]
    refusals = sum(sum(reasons.values()) for reasons in state["rejected"].values())
    verify("the limit was in force and refused nothing", right=state["limit"] > 0 and refusals == 0)
    verify("all permits were released", right=state["in_flight"] == 0)


def in_turns(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure the sides in turns, another one first in each turn."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds * PAIRS_A_ROUND):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figures[name].append(sides[name]())
    return figures


def row(what: str, peer: tuple[str, str], ours: str, figures: dict[str, list[float]], target: float) -> Row:
    """Compare two sides: the median of each turn's own ratio."""
    label, theirs = peer
    ratio = median(mine / other for mine, other in zip(figures[ours], figures[theirs], strict=True))
    context = f"{median(figures[ours]):.1f} µs against {median(figures[theirs]):.1f} µs"
    return Row(what, label, ratio, "≤", target, context)
