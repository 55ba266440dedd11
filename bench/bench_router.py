"""Two masters behind a router against one master, and the computing time of a router for each record.

The load is that of `bench.bus_load` for two domains. Every run, the timed ones too, has to count each verdict: nothing
may be dropped on the way. Two masters need a core each, as do the router and the load.
"""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from typing import IO, Any, NamedTuple

import psutil

from bench.bus_load import MESSAGES
from bench.measure import Row, compare, verify
from bench.routed_master import DOMAINS, owned_domain

_PATIENCE = 120.0
_CORES = 4


class Run(NamedTuple):
    """What was measured while everything was sent once."""

    seconds: float
    """From the first record that a master read to the last."""
    by_masters: float
    """Seconds that the masters computed."""
    by_router: float
    """Seconds that the router computed."""


def run_load(way: str, *, masters: int, routed: bool) -> Run:
    """Send the load of two domains to one master, or through a router to one or two, and check the result."""
    with ExitStack() as stack:
        count = str(2 * MESSAGES // masters)
        receivers = [_started(stack, "bench.routed_master", count) for _ in range(masters)]
        addresses = [f"tcp://127.0.0.1:{_line(receiver.stdout)}" for receiver in receivers]
        domains = [owned_domain(address, addresses) for address in addresses]
        if masters == 1:
            domains.append(next(name for name in DOMAINS if name not in domains))
        words = [word for address in addresses for word in ("--master", address)]
        router = _started(stack, "headgate", "router", "--listen", "127.0.0.1:0", *words) if routed else None
        port = addresses[0].rpartition(":")[2] if router is None else _router_port(router)
        before = _computed(router)
        sender = _started(stack, "bench.bus_load", way, port, *domains)
        results = [json.loads(receiver.communicate(timeout=_PATIENCE)[0]) for receiver in receivers]
        by_router = _computed(router) - before
        if router is not None:
            router.terminate()
        sender.communicate(timeout=_PATIENCE)
    _check(results, domains)
    return Run(
        max(result["last"] for result in results) - min(result["first"] for result in results),
        sum(result["computed"] for result in results),
        by_router,
    )


def _computed(process: "subprocess.Popen[str] | None") -> float:
    """Return the seconds that a process has computed."""
    times = psutil.Process(process.pid).cpu_times() if process is not None else (0.0, 0.0)
    return sum(times[:2])


def _check(results: list[Any], domains: list[str]) -> None:
    counted: dict[str, int] = {}
    for result in results:
        for name, totals in result["totals"].items():
            verify(f"{name} has one master", right=name not in counted)
            counted[name] = sum(totals.values())
        verify("there are controls", right=result["controls"] > 100)
    verify(f"each verdict is counted: {counted}", right=counted == dict.fromkeys(domains, MESSAGES))


def _started(stack: ExitStack, module: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start a program, which ends with `stack` at the latest."""
    pipe = subprocess.PIPE
    process = stack.enter_context(
        subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=pipe, stderr=pipe, text=True)
    )
    stack.callback(process.kill)
    return process


def _router_port(router: "subprocess.Popen[str]") -> str:
    for _ in range(2):
        if ready := re.match(r"ready tcp://.*:(\d+)$", _line(router.stderr)):
            return ready[1]
    raise AssertionError("the router does not start")


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def run(rounds: int) -> list[Row]:
    """Give the rate of two masters behind a router, and what a router computes for each record."""
    measured = compare(
        lambda: 2 * MESSAGES / run_load("batch", masters=2, routed=True).seconds,
        lambda: 2 * MESSAGES / run_load("batch", masters=1, routed=False).seconds,
        rounds=rounds,
    )
    context = f"{measured.ours / 1e3:.0f}k/s against {measured.peer / 1e3:.0f}k/s"
    rows = [Row("two masters behind a router, records/s", "one master", measured.ratio, "≥", 1.6, context, _CORES)]
    for way, what, target in (("batch", "batched record", 0.25), ("frames", "six-frame message", 2.0)):
        rows.append(_computing_time(way, what, target, rounds))
    return rows


def _computing_time(way: str, what: str, target: float, rounds: int) -> Row:
    """Give what a router computes for each record, against a master that receives the same without a router."""
    measured = compare(
        lambda: run_load(way, masters=1, routed=True).by_router / (2 * MESSAGES),
        lambda: run_load(way, masters=1, routed=False).by_masters / (2 * MESSAGES),
        rounds=rounds,
    )
    context = f"{measured.ours * 1e6:.2f} µs against {measured.peer * 1e6:.2f} µs"
    return Row(f"router, computing time for a {what}", "one master", measured.ratio, "≤", target, context)
