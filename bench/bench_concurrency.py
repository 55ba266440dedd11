"""The concurrency limit of the gate: what it costs a proxied request, and what a refusal costs.

Every side is one process that uses one core, and its processor time is what the system charged it with, divided by the
requests made. wrk sends the heads of a browser over 32 kept connections, no two of them alike (`browser_load`).

Proxied requests: a gate with a limit that is never reached, fixed or learned, against one without. Before it is nginx,
which answers 131 bytes from memory. The gates take turns within a round, and all have the same rule.

Refusals: a gate whose only place is taken, so that every request is refused, against nginx with `limit_req` that
answers 503, and against the answer of a small application, a Starlette view that returns JSON, under uvicorn. A gate
that closes the connection with each refusal is measured too: its clients connect again for each request.

Each round first proves that the origin's body, or a refusal with `Retry-After`, arrives; and afterwards that wrk saw
nothing else.
"""

import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.bench_gateway import BODY, LASTING, ORIGIN, Side, fetch, nginx, settle
from bench.browser_load import load, write_script
from bench.measure import Absent, Row, verify
from tests import servers

SECONDS = 2
PAIRS_A_ROUND = 2
RULE = '[[domain]]\nname = "default"\nrules = ["1000000/s burst 1000"]\n'
LIMITS = {
    "without": "",
    "fixed": "[limit.concurrency]\nmax = 1000\n",
    "learned": '[limit.concurrency]\nmax = "learned"\nfloor = 500\n',
}
FULL = "[limit.concurrency]\nmax = 1\nqueue = 0\n"
PROXIED_TARGET = 1.1
REFUSED_TARGET = 2.5
SHARE_TARGET = 0.07
CLOSE = '"Connection: close\\r\\n"'
APPLICATION = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def item(request):
    number = int(request.path_params["number"])
    query = request.query_params.get("query")
    return JSONResponse({"item": number, "query": query, "price": number % 100, "stock": True})

application = Starlette(routes=[Route("/shop/item/{number}/details", item)])
"""


def run(rounds: int) -> list[Row]:
    """Measure proxied requests and refusals."""
    for program in ("nginx", "wrk"):
        if servers.find_program(program) is None:
            raise Absent(f"{program} is not installed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        (folder / "origin").mkdir()
        directives = ORIGIN.format(body=BODY.replace("\n", "\\n"))
        origin = running.enter_context(servers.nginx(folder / "origin", server=directives, http=LASTING)).port
        return proxied(folder, origin, rounds) + refused(folder, origin, rounds)


def proxied(folder: Path, origin: int, rounds: int) -> list[Row]:
    """Measure proxied requests with and without a limit."""
    with ExitStack() as running:
        sides = {name: running.enter_context(gate(folder, origin, RULE + text, name)) for name, text in LIMITS.items()}
        script = write_script(folder / "load.lua")

        def cost(side: Side) -> float:
            verify("the origin's body arrives", right=fetch(side.port)[:2] == (200, BODY))
            return microseconds_each(side, script, expect_refusals=False)

        figures = in_turns({name: partial(cost, side) for name, side in sides.items()}, rounds)
        for name in ("fixed", "learned"):
            check_limit(sides[name])
    return [
        row(
            f"gate with a {name} limit, CPU per proxied request",
            ("the gate without", "without"),
            name,
            figures,
            PROXIED_TARGET,
        )
        for name in ("fixed", "learned")
    ]


def refused(folder: Path, origin: int, rounds: int) -> list[Row]:
    """Measure refusals, and the answers of a small application."""
    with ExitStack() as running:
        stuck = running.enter_context(socket.create_server(("127.0.0.1", 0)))  # accepts and never answers
        full = running.enter_context(gate(folder, stuck.getsockname()[1], FULL, "full"))
        holder = running.enter_context(socket.create_connection(("127.0.0.1", full.port)))
        holder.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        peer = running.enter_context(nginx(folder / "refused", "rejected", origin))
        application = running.enter_context(small_application(folder))
        script, closing = write_script(folder / "kept.lua"), write_script(folder / "closed.lua", more=CLOSE)

        def refusals(side: Side, path: Path) -> float:
            fetch(side.port)  # nginx lets the first one through
            status, _, retry_after = fetch(side.port)
            verify("a request is refused, with Retry-After", right=status == 503 and retry_after.isdigit())
            return microseconds_each(side, path, expect_refusals=True)

        def answers() -> float:
            status, body, _ = fetch(application.port, "/shop/item/7/details?query=9")
            verify("the application answers", right=status == 200 and json.loads(body)["item"] == 7)
            return microseconds_each(application, script, expect_refusals=False)

        figures = in_turns(
            {
                "nginx": partial(refusals, peer, script),
                "gate": partial(refusals, full, script),
                "closing gate": partial(refusals, full, closing),
                "application": answers,
            },
            rounds,
        )
    return [
        row("gate, CPU per refusal", ("nginx, limit_req", "nginx"), "gate", figures, REFUSED_TARGET),
        row("gate, CPU per refusal", ("a small application's answer", "application"), "gate", figures, SHARE_TARGET),
        row("gate, CPU per refusal that closes", ("a refusal that keeps", "gate"), "closing gate", figures, 10.0),
    ]


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
        yield Side(port, started.process.pid, admin)


@contextmanager
def small_application(folder: Path) -> Iterator[Side]:
    """Run a Starlette application under uvicorn on uvloop and httptools, one worker."""
    (folder / "application.py").write_text(APPLICATION)
    port = servers.free_port()
    options = [
        "--port",
        str(port),
        "--no-access-log",
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--log-level",
        "error",
    ]
    command = [sys.executable, "-m", "uvicorn", "application:application", *options, "--app-dir", str(folder)]
    with servers.started(command, port, folder) as started:
        yield Side(port, started.process.pid)


def microseconds_each(side: Side, script: Path, *, expect_refusals: bool) -> float:
    """Return the microseconds of processor time that one request costs, over some seconds of requests."""
    before = side.cpu()
    result = load(side.port, script, seconds=SECONDS)
    spent = side.cpu() - before
    settle(side)
    missing = result.requests - result.refused if expect_refusals else result.refused
    verify("wrk saw refusals only, or none", right=missing <= expect_refusals)  # nginx lets one through in a minute
    return spent / result.requests * 1e6


def check_limit(side: Side) -> None:
    """Verify that a limit was in force and refused nothing."""
    state = json.loads(fetch(side.admin, "/api/state")[1])["concurrency"]
    refusals = sum(sum(reasons.values()) for reasons in state["refused"].values())
    verify("the limit was in force and refused nothing", right=state["limit"] > 0 and refusals == 0)
    verify("all places were given back", right=state["in_flight"] == 0)


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
