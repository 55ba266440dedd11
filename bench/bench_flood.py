"""What people get while a flood asks for ten times the capacity, by the time of an answer and the place of the gate.

The application, a Starlette view that takes one, two or five milliseconds of processor time under uvicorn, has a core.
The clients, wrk, have the other one. People are a few connections that ask again as soon as they are answered; what
they are answered is what the application has left for them. The flood has a lower priority, and many connections that
pause before each request, so that their rate hardly depends on what they are answered. Ten times the capacity is few
requests a second at such answers: the flood, and a gate beside it, use a small part of their core. That, and that the
flood arrived, is shown.

Four cases take turns: the gate on the application's core; on the other core; on the application's core with a flood
whose connections are closed by each refusal, so that its clients connect again; and no gate. Each is compared with what
people get from the application alone, without a gate and without the flood. All rates are those of a whole second of
processor time of what runs on the application's core: on a quiet machine that is a second, since the core is never
idle, and on a busy one other processes do not count. The bounds are what the costs of a refusal and of a proxied
request leave of a core, less a tenth.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.bench_concurrency import gate, small_application
from bench.bench_gateway import Side, fetch
from bench.browser_load import load, write_script
from bench.measure import Absent, Row, verify
from tests import servers

SECONDS = 3
ANSWERS = (0.001, 0.002, 0.005)
OVERLOAD = 10
LEAST_OVERLOAD = 9
PEOPLE = 8
"""Connections of people: more than places, so that some of them always wait, and few enough for half of the queue."""
PAUSE = 200
"""Milliseconds for which a client of the flood pauses on average."""
_RESPONSE = 5
"""Milliseconds that a response to the flood is assumed to take."""
APPLICATION_CORE, CLIENT_CORE = 0, 1
ON_CLIENT_CORE = ("taskset", "--cpu-list", str(CLIENT_CORE))
REFUSAL, REFUSAL_THAT_CLOSES, PROXIED = 17e-6, 73e-6, 26e-6
"""Seconds of processor time of the gate, as `bench concurrency` measures them on a quiet machine."""
TOLERANCE = 0.9
LIMIT = """
[gate.bounds]
client_connections = 0
[limit.concurrency]
max = 4
queue = 32
queue_target = 10
[[domain]]
name = "flood"
priority = "prefetch"
header = "Sec-Purpose"
value = "prefetch"
"""
PREFETCH = '"Sec-Purpose: prefetch\\r\\n'


@dataclass(frozen=True)
class Case:
    """Where the gate is, and what its refusals do."""

    what: str
    core: int = APPLICATION_CORE
    closes: bool = False
    has_gate: bool = True

    def expected(self, answer: float) -> float:
        """Return the share of their answers that the gate's processor time leaves to people."""
        if not self.has_gate or self.core == CLIENT_CORE:
            return float(self.has_gate)
        refusal = REFUSAL_THAT_CLOSES if self.closes else REFUSAL
        return max(0.0, (1 - OVERLOAD * refusal / answer) / (1 + (PROXIED - refusal) / answer))


CASES = (
    Case("gate on the application's core"),
    Case("gate on another core", core=CLIENT_CORE),
    Case("refusals that close, on the application's core", closes=True),
    Case("no gate", has_gate=False),
)


@dataclass(frozen=True)
class Run:
    """What people got in one case."""

    share: float
    """Their answers in a second of the application's core, as a share of those without the flood."""
    p99: float
    """Milliseconds within which 99 of 100 answers to people arrived."""
    overload: float
    """The flood, as a multiple of the capacity."""
    gate: float
    """The share of a core that the gate used."""
    gate_each: float
    """Microseconds of its processor time for each request, refused or not."""


@dataclass(frozen=True)
class Seen:
    """The answers to people."""

    answers: int
    seconds: float
    cpu: float
    """Seconds of processor time of what runs on the application's core."""
    p99: float

    @property
    def rate(self) -> float:
        """Answers in a second of the core."""
        return self.answers / self.cpu


def run(rounds: int) -> list[Row]:
    """Measure people under a flood."""
    if servers.find_program("wrk") is None or servers.find_program("taskset") is None:
        raise Absent("wrk or taskset is not installed")
    if not {APPLICATION_CORE, CLIENT_CORE} <= os.sched_getaffinity(0):
        raise Absent("two cores are needed")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for answer in ANSWERS:
            rows += answers_of(answer, Path(folder), rounds)
    return rows


def answers_of(answer: float, folder: Path, rounds: int) -> list[Row]:
    """Measure all cases with an application whose answers take so many seconds."""
    with ExitStack() as running:
        application = running.enter_context(small_application(folder, answer))
        os.sched_setaffinity(application.pid, {APPLICATION_CORE})
        front = running.enter_context(gate(folder, application.port, LIMIT, "flooded"))
        clients = Clients(folder, application, front)
        runs: dict[Case, list[Run]] = {case: [] for case in CASES}
        for _ in range(rounds):
            alone = clients.ask_application()
            for case, found in runs.items():
                found.append(clients.run(case, alone))
    return [row(case, answer, found) for case, found in runs.items()]


class Clients:
    """People and a flood, at an application or at the gate in front of it."""

    def __init__(self, folder: Path, application: Side, front: Side) -> None:
        self._application = application
        self._gate = front
        self._people = write_script(folder / "people.lua")
        self._floods = {
            closes: write_script(
                folder / f"flood-{closes}.lua",
                first=10**9,
                more=PREFETCH + ('Connection: close\\r\\n"' if closes else '"'),
                pause=PAUSE,
            )
            for closes in (False, True)
        }

    def ask_application(self) -> Seen:
        """Measure people without the gate and without the flood."""
        fetch(self._application.port, "/shop/item/1/details?query=1")  # after what is left of a flood
        return self._ask(self._application, (self._application,))

    def run(self, case: Case, alone: Seen) -> Run:
        """Measure people in one case."""
        side = self._gate if case.has_gate else self._application
        os.sched_setaffinity(self._gate.pid, {case.core})
        shares = case.has_gate and case.core == APPLICATION_CORE
        on_core = (self._application, self._gate) if shares else (self._application,)
        with self._flooded(side, case, OVERLOAD * alone.answers / alone.seconds):
            refused, used = self._refused(), self._gate.cpu()
            seen = self._ask(side, on_core)
            refused, used = self._refused() - refused, self._gate.cpu() - used
        overload, each = refused / seen.cpu / alone.rate, used / (refused + seen.answers) if refused else 0.0
        return Run(seen.rate / alone.rate, seen.p99, overload, used / seen.seconds, each * 1e6)

    def _ask(self, side: Side, on_core: tuple[Side, ...]) -> Seen:
        cpu, began = sum(each.cpu() for each in on_core), time.monotonic()
        result = load(side.port, self._people, seconds=SECONDS, prefix=ON_CLIENT_CORE, connections=PEOPLE)
        cpu, seconds = sum(each.cpu() for each in on_core) - cpu, time.monotonic() - began
        verify(
            "people are not refused: the queue has room and time for all of them",
            right=not result.refused,
        )
        return Seen(result.requests, seconds, cpu, result.p99)

    def _refused(self) -> int:
        state = json.loads(fetch(self._gate.admin, "/api/state")[1])["concurrency"]
        return sum(state["refused"]["prefetch"].values())

    @contextmanager
    def _flooded(self, side: Side, case: Case, rate: float) -> Iterator[None]:
        connections = round(rate * (PAUSE + _RESPONSE) / 1000)
        script, seconds = self._floods[case.closes], SECONDS + 2
        with ThreadPoolExecutor(1) as pool:
            flood = pool.submit(
                load, side.port, script, seconds=seconds, prefix=ON_CLIENT_CORE, connections=connections
            )
            time.sleep(1)  # until all are connected
            yield
            flood.result()


def row(case: Case, answer: float, runs: list[Run]) -> Row:
    """Put the medians of a case into a row."""
    share, p99 = median(run.share for run in runs), median(run.p99 for run in runs)
    context = f"{min(run.share for run in runs):.2f} to {max(run.share for run in runs):.2f}"
    context += f"; p99 {p99:.0f} ms" if p99 else "; no answer"
    if case.has_gate:
        overload, used, each = (
            median(getattr(run, name) for run in runs) for name in ("overload", "gate", "gate_each")
        )
        little = "" if overload >= LEAST_OVERLOAD else " only"
        context += f"; flood{little} x {overload:.1f}; gate {used:.2f} of a core, {each:.0f} µs a request"
    what = f"{1000 * answer:.0f} ms, {case.what}"
    return Row(what, "no flood", share, "≥", round(TOLERANCE * case.expected(answer), 2), context, cores=2)
