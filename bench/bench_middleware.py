"""An ASGI application with the middleware against the same application bare, and its rejections against `limits`.

Accepted requests are measured twice: before a Starlette application of one route, as people write them, and before one
written against ASGI itself, which does nothing but answer and so makes the middleware's share as large as it can be.
Rejected ones are compared with those of a middleware made with the library `limits`. Every side is served by uvicorn on
uvloop and httptools, one worker, pinned to one core where there are two. wrk sends the heads of a browser, no two of
them alike (`browser_load`), as 1000 identifiers over 32 kept connections; the master of the limited side drains the
accounting in a process of its own. Every response must have the expected status, and the master must have counted at
least 99 % of what wrk received.

Requests a second are those of a whole second of the core: responses over the processor time of the application. Where
the application is the bottleneck, as on a quiet machine, that is what wrk sees; on a busy one wrk sees who else ran.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from socket import create_connection
from statistics import median

from bench.browser_load import CONNECTIONS, Result, load, write_script
from bench.measure import Absent, Row, verify
from bench.middleware_app import ADDRESS
from tests.servers import free_port

ROOT = Path(__file__).resolve().parent.parent
PAIRS_A_ROUND = 5
IDENTIFIERS = 1_000
KEY = f'"X-Api-Key: identifier-" .. (number % {IDENTIFIERS}) .. "\\r\\n"'


@dataclass(frozen=True)
class Load:
    """One run of wrk, and the processor time that the application took for it, in seconds."""

    result: Result
    cpu: float

    @property
    def rate(self) -> float:
        """Responses in a second of the core."""
        return self.result.requests / self.cpu

    @property
    def microseconds(self) -> float:
        """Processor time for each response."""
        return self.cpu / self.result.requests * 1e6


@dataclass
class Side:
    """One of the applications: where it listens, its process, and the loads that it has had."""

    port: int
    pid: int
    loads: list[Load] = field(default_factory=list)

    def cpu(self) -> float:
        """Return the processor time its process has taken, all threads, in seconds."""
        # Nanoseconds, where the times of a process are in hundredths of a second; the threads live as long as it does.
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def cores() -> tuple[set[int], set[int]]:
    """Return the cores of the application, and of the load and the master: apart where there are two."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, set(usable[1:] or usable)


@contextmanager
def process(command: list[str], on: set[int], **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a process on some cores, and stop it."""
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        os.sched_setaffinity(running.pid, on)
        try:
            yield running
        finally:
            running.terminate()


@contextmanager
def serving(app: str, **environment: str) -> Iterator[Side]:
    """Serve an application of `bench.middleware_app` with uvicorn on a free port."""
    port = free_port()
    flags = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), *flags, "--factory", f"bench.middleware_app:{app}"]
    with process(command, cores()[0], **environment) as server:
        for _ in range(200):
            verify("the server keeps running", right=server.poll() is None)
            try:
                create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                break
        yield Side(port, server.pid)


def loaded(side: Side, script: Path, *, rejected: bool = False) -> Load:
    """Send requests for a second, as fast as responses arrive."""
    before = side.cpu()
    on = ",".join(map(str, cores()[1]))
    result = load(side.port, script, seconds=1, prefix=("taskset", "--cpu-list", on))
    # A rejecting side lets the first request of each identifier through.
    passed = result.requests - result.refused
    right = passed <= IDENTIFIERS + CONNECTIONS if rejected else result.refused == 0
    verify(f"requests are {'rejected' if rejected else 'accepted'}", right=right)
    spent = side.cpu() - before
    verify("the application itself answered, and not another process at its port", right=spent > 0)
    return Load(result, spent)


def counted(master: "subprocess.Popen[str]") -> int:
    """Return how many requests the master has counted, once what is under way has arrived."""
    time.sleep(0.2)
    assert master.stdin is not None
    assert master.stdout is not None
    print("count", file=master.stdin, flush=True)
    return sum(json.loads(master.stdout.readline()))


def run(rounds: int) -> list[Row]:
    """Measure accepted requests, bare and limited in turns, and rejected ones, ours and those of `limits` in turns."""
    check_programs()
    with tempfile.TemporaryDirectory() as folder:
        script = write_script(Path(folder) / "load.lua", more=KEY)
        return [
            *accepted("starlette", "Starlette app with the middleware", script, rounds),
            *accepted("raw", "raw ASGI app with the middleware", script, rounds),
            *rejections(script, rounds),
        ]


def check_programs() -> None:
    """Raise Absent for what is not installed."""
    for program in ("wrk", "taskset"):
        if which(program) is None:
            raise Absent(f"{program} is not installed; make servers")
    for module in ("uvicorn", "uvloop", "httptools", "starlette", "limits"):
        if importlib.util.find_spec(module) is None:
            raise Absent(f"{module} is not installed; make venv")


def in_turns(sides: Sequence[Side], script: Path, rounds: int, *, rejected: bool = False) -> None:
    """Load the sides in short turns: whatever else the machine does lasts longer than one, and falls on all."""
    for side in sides:
        loaded(side, script, rejected=rejected)
    for turn in range(rounds * PAIRS_A_ROUND):
        for side in sides if turn % 2 else sides[::-1]:
            side.loads.append(loaded(side, script, rejected=rejected))


def accepted(app: str, what: str, script: Path, rounds: int) -> list[Row]:
    """Measure one application of `bench.middleware_app`, bare and limited."""
    with ExitStack() as stack:
        here = [sys.executable, "-m", "bench.middleware_app", "tcp://127.0.0.1:0"]
        master = stack.enter_context(process(here, cores()[1]))
        assert master.stdout is not None
        address = master.stdout.readline().strip()
        bare = stack.enter_context(serving(app))
        limited = stack.enter_context(serving(f"limited_{app}", **{ADDRESS: address}))
        in_turns((bare, limited), script, rounds)
        count = counted(master)
    # The first of the loads, which is not among those kept, was counted too.
    answers = sum(each.result.requests for each in limited.loads)
    verify(f"the master counted at least 99 % of {answers} requests: {count}", right=count >= 0.99 * answers)
    return accepted_rows(what, bare.loads, limited.loads)


def accepted_rows(what: str, bare: Sequence[Load], limited: Sequence[Load]) -> list[Row]:
    """Put the medians of the pairs' ratios into rows."""
    pairs = list(zip(limited, bare, strict=True))
    ours, theirs = (median(each.rate for each in loads) for loads in (limited, bare))
    p99, bare_p99 = (median(each.result.p99 for each in loads) for loads in (limited, bare))
    return [
        Row(
            f"{what}, requests/s",
            "the bare app",
            median(mine.rate / other.rate for mine, other in pairs),
            "≥",
            0.88,
            f"{ours:,.0f}/s against {theirs:,.0f}/s of a core",
        ),
        Row(
            f"{what}, p99",
            "the bare app",
            median(mine.result.p99 / other.result.p99 for mine, other in pairs),
            "≤",
            1.5,
            f"{p99:.2f} ms against {bare_p99:.2f} ms",
        ),
    ]


def rejections(script: Path, rounds: int) -> list[Row]:
    """Measure rejected requests: ours, those of `limits`, and beside them what the bare app's answers cost."""
    with ExitStack() as stack:
        ours = stack.enter_context(serving("rejecting"))
        library = stack.enter_context(serving("rejecting_with_limits"))
        bare = stack.enter_context(serving("raw"))
        in_turns((ours, library), script, rounds, rejected=True)
        for _ in ours.loads:
            bare.loads.append(loaded(bare, script))
    mine = median(each.microseconds for each in ours.loads)
    return [
        Row(
            "middleware, CPU per rejected request",
            peer,
            median(each.microseconds / other.microseconds for each, other in zip(ours.loads, side.loads, strict=True)),
            "≤",
            target,
            f"{mine:.1f} µs against {median(each.microseconds for each in side.loads):.1f} µs",
        )
        for peer, side, target in (("the same with limits", library, 0.9), ("an answer of the bare app", bare, 1.2))
    ]
