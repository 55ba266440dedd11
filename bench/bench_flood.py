"""What a core of its own for the gate is worth to people while a flood asks for ten times the capacity.

One core has the application, a Starlette view that takes half a millisecond, under uvicorn. The other core has the
clients, wrk: people, who ask for most of the capacity, and a flood of lower priority that asks for ten times the
capacity, at a steady rate whatever it is answered. The gate has the core of the application in one run and that of the
clients in the other: there is no third core, so there it has what the clients leave.

Before it the same people are measured without the flood. How much of the flood arrived is shown: a gate without time
for it makes its clients wait, and so gets less of it. So shorter answers cannot be measured like this: one core cannot
refuse ten times as many requests as another one answers.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.bench_concurrency import gate, small_application
from bench.bench_gateway import Side
from bench.browser_load import load, write_script
from bench.measure import Absent, Row, verify
from tests import servers

SECONDS = 4
WORK = 0.0005
OVERLOAD = 10
LEAST_OVERLOAD = 3
PAUSE = 100
"""Milliseconds for which a client of the flood pauses: long, so that the rate depends little on that of the answers."""
_RESPONSE = 10
"""Milliseconds that a response to the flood is assumed to take."""
PEOPLE = 48
"""Connections of people."""
DEMAND = 0.8
"""The share of the capacity that people ask for, a little less as responses take time."""
APPLICATION_CORE, CLIENT_CORE = 0, 1
ON_CLIENT_CORE = ("taskset", "--cpu-list", str(CLIENT_CORE))
LIMIT = """
[gate.bounds]
client_connections = 0
[limit.concurrency]
max = 4
queue = 8
[[domain]]
name = "flood"
priority = "prefetch"
header = "Sec-Purpose"
value = "prefetch"
"""


@dataclass(frozen=True)
class Run:
    """What people got."""

    answered: float
    """Answers per second."""
    p99: float
    """Milliseconds within which 99 of 100 responses to people arrived, refusals included."""
    gate: float
    """The share of a core that the gate used."""
    overload: float = 0.0
    """The flood, as a multiple of the capacity."""


def run(rounds: int) -> list[Row]:
    """Measure people under a flood, with the gate on either core."""
    if servers.find_program("wrk") is None or servers.find_program("taskset") is None:
        raise Absent("wrk or taskset is not installed")
    if not {APPLICATION_CORE, CLIENT_CORE} <= os.sched_getaffinity(0):
        raise Absent("two cores are needed")
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        application = running.enter_context(small_application(folder, WORK))
        os.sched_setaffinity(application.pid, {APPLICATION_CORE})
        front = running.enter_context(gate(folder, application.port, LIMIT, "flooded"))
        capacity = measured_capacity(application, folder)
        clients = Clients(folder, front, capacity)
        shared, own = [], []
        for _ in range(rounds):
            shared.append(clients.on(APPLICATION_CORE))
            own.append(clients.on(CLIENT_CORE))
    return [row(own, shared, capacity)]


def measured_capacity(application: Side, folder: Path) -> float:
    """Return the requests per second that the application answers."""
    result = load(application.port, write_script(folder / "all.lua"), seconds=2, prefix=ON_CLIENT_CORE)
    verify("the application answers all requests", right=not result.refused)
    return result.requests / 2


class Clients:
    """People and a flood at a gate before an application of some capacity."""

    def __init__(self, folder: Path, gate: Side, capacity: float) -> None:
        self._gate = gate
        self._capacity = capacity
        self._overload = 0.0
        self._people = write_script(folder / "people.lua", pause=round(1000 * PEOPLE / (DEMAND * capacity)))
        self._flood = write_script(folder / "flood.lua", first=10**9, more='"Sec-Purpose: prefetch\\r\\n"', pause=PAUSE)

    def on(self, core: int) -> tuple[Run, Run]:
        """Measure people without the flood and with it, while the gate runs on one core."""
        os.sched_setaffinity(self._gate.pid, {core})
        alone = self._ask()
        with self._flooded():
            flooded = self._ask()
        return alone, replace(flooded, overload=self._overload)

    def _ask(self) -> Run:
        before = self._gate.cpu()
        seen = load(self._gate.port, self._people, seconds=SECONDS, prefix=ON_CLIENT_CORE, connections=PEOPLE)
        used = (self._gate.cpu() - before) / SECONDS
        return Run((seen.requests - seen.refused) / SECONDS, seen.p99, used)

    @contextmanager
    def _flooded(self) -> Iterator[None]:
        rate, seconds = OVERLOAD * self._capacity, SECONDS + 3
        connections = round(rate * (PAUSE + _RESPONSE) / 1000)
        with ThreadPoolExecutor(1) as pool:
            flood = pool.submit(
                load, self._gate.port, self._flood, seconds=seconds, prefix=ON_CLIENT_CORE, connections=connections
            )
            time.sleep(2)  # until all are connected
            yield
            seen = flood.result()
        reached = seen.requests / seconds / self._capacity
        verify(f"the flood reached {LEAST_OVERLOAD} times the capacity", right=reached >= LEAST_OVERLOAD)
        self._overload = reached
        verify("nearly all of the flood was refused", right=seen.refused > 0.9 * seen.requests)


def row(own: list[tuple[Run, Run]], shared: list[tuple[Run, Run]], capacity: float) -> Row:
    """Compare the answers to people under the flood: the median of each round's own ratio."""
    ratio = median(mine.answered / theirs.answered for (_, mine), (_, theirs) in zip(own, shared, strict=True))
    context = f"{capacity:.0f}/s; people {described(own)} against {described(shared)}"
    return Row(
        "people under a flood, gate on a core of its own",
        "on the application's core",
        ratio,
        "≥",
        1.0,
        context,
        cores=2,
    )


def described(runs: list[tuple[Run, Run]]) -> str:
    """Describe what people got: the share of what they get without the flood, and how fast."""
    share = median(flooded.answered / alone.answered for alone, flooded in runs)
    p99, unloaded = median(flooded.p99 for _, flooded in runs), median(alone.p99 for alone, _ in runs)
    gate, overload = median(flooded.gate for _, flooded in runs), median(flooded.overload for _, flooded in runs)
    return f"{share:.2f} (flood x {overload:.1f}; p99 {p99:.0f} ms, {unloaded:.0f} without it; gate {gate:.2f} cores)"
