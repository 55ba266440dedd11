"""An ASGI application with the middleware against the same application bare.

Twice: a Starlette application of one route, as people write them, and one written against ASGI itself, which does
nothing but answer and so makes the middleware's share as large as it can be. Both sides are served by uvicorn on uvloop
and httptools, one worker, pinned to one core where there are two; wrk asks over 32 keep-alive connections as 1000
identifiers, and the master of the limited side drains the accounting in a process of its own. Every answer must be a
200, and the master must have counted at least 99 % of what wrk was answered.

Requests a second are those of a whole second of the core: answers over the processor time of the application. Where the
application is the bottleneck, as on a quiet machine, that is what wrk sees; on a busy one wrk sees who else ran.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from socket import create_connection, socket
from statistics import median

import psutil

from bench.measure import Absent, Row, verify
from bench.middleware_app import ADDRESS

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
PAIRS_A_ROUND = 5
CONNECTIONS = 32
IDENTIFIERS = 1_000
SCRIPT = f"""
local requests, turn = {{}}, 0
function init()
  for i = 1, {IDENTIFIERS} do
    requests[i] = wrk.format("GET", "/", {{["Host"] = "127.0.0.1", ["X-Api-Key"] = "identifier-" .. i}})
  end
end
function request()
  turn = turn % {IDENTIFIERS} + 1
  return requests[turn]
end
"""
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Load:
    """One run of wrk: how many answers, the 99th percentile of their time, and the processor time they took."""

    answers: int
    p99: float  # milliseconds
    cpu: float  # seconds


@dataclass
class Side:
    """One of the two applications: where it listens, its process, and the loads it has borne."""

    port: int
    pid: int
    loads: list[Load] = field(default_factory=list)

    def cpu(self) -> float:
        """Give the processor time its process has taken, all threads, in seconds."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


def found(pattern: str, text: str) -> re.Match[str]:
    """Find what wrk always prints."""
    match = re.search(pattern, text)
    verify(f"wrk prints {pattern}", right=match is not None)
    assert match is not None
    return match


def cores() -> tuple[set[int], set[int]]:
    """Give the cores of the application, and of the load and the master: apart where there are two."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, set(usable[1:] or usable)


@contextmanager
def process(command: list[str], on: set[int], **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a process on some cores, and stop it."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        os.sched_setaffinity(running.pid, on)
        try:
            yield running
        finally:
            running.terminate()


@contextmanager
def serving(app: str, **environment: str) -> Iterator[Side]:
    """Serve an application of `bench.middleware_app` on a free port."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    flags = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error"]
    command = [sys.executable, "-m", "uvicorn", "--factory", f"bench.middleware_app:{app}", "--port", str(port)]
    with process([*command, *flags], cores()[0], **environment) as server:
        for _ in range(200):
            verify("uvicorn keeps running", right=server.poll() is None)
            try:
                create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                break
        yield Side(port, server.pid)


def load(side: Side, script: Path) -> Load:
    """Ask for a second, as fast as answers come."""
    flags = ["-t1", f"-c{CONNECTIONS}", "-d1s", "--latency", "-s", str(script)]
    before = side.cpu()
    with process(["wrk", *flags, f"http://127.0.0.1:{side.port}/"], cores()[1]) as running:
        text = running.communicate()[0]
    verify("every answer is a 200, and none is missing", right="Non-2xx" not in text and "Socket errors" not in text)
    value, unit = found(r"99%\s+([\d.]+)(us|ms|s)", text).groups()
    return Load(int(found(r"(\d+) requests in", text)[1]), float(value) * UNITS[unit], side.cpu() - before)


def counted(master: "subprocess.Popen[str]") -> int:
    """Ask the master how many requests it has counted, once what is under way has arrived."""
    time.sleep(0.2)
    assert master.stdin is not None
    assert master.stdout is not None
    print("count", file=master.stdin, flush=True)
    return sum(json.loads(master.stdout.readline()))


def run(rounds: int) -> list[Row]:
    """Measure requests a second and the 99th percentile, bare and limited in turns."""
    if which("wrk") is None:
        raise Absent("wrk is not installed; make servers")
    for module in ("uvicorn", "uvloop", "httptools", "starlette"):
        if importlib.util.find_spec(module) is None:
            raise Absent(f"{module} is not installed; make venv")
    return [
        *measured("starlette", "Starlette app with the middleware", rounds),
        *measured("raw", "raw ASGI app with the middleware", rounds),
    ]


def measured(app: str, what: str, rounds: int) -> list[Row]:
    """Measure one application of `bench.middleware_app`, bare and limited in turns."""
    with ExitStack() as stack:
        script = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "identifiers.lua"
        script.write_text(SCRIPT)
        here = [sys.executable, "-m", "bench.middleware_app", "tcp://127.0.0.1:0"]
        master = stack.enter_context(process(here, cores()[1]))
        assert master.stdout is not None
        address = master.stdout.readline().strip()
        bare = stack.enter_context(serving(app))
        limited = stack.enter_context(serving(f"limited_{app}", **{ADDRESS: address}))
        for side in (bare, limited):
            load(side, script)
        before = counted(master)
        verify("the master has counted the first requests", right=before > 0)
        # Short turns in pairs: whatever else the machine does lasts longer than one, and falls on both.
        for turn in range(rounds * PAIRS_A_ROUND):
            for side in (limited, bare) if turn % 2 else (bare, limited):
                side.loads.append(load(side, script))
        count = counted(master) - before
    answers = sum(each.answers for each in limited.loads)
    # wrk leaves out the answers under way when a turn ends, up to one a connection; the master has counted them.
    most = answers + CONNECTIONS * len(limited.loads)
    verify(f"of {answers} requests the master counted at least 99 %: {count}", right=0.99 * answers <= count <= most)
    return rows(what, bare.loads, limited.loads, min(1.0, count / answers))


def rows(what: str, bare: Sequence[Load], limited: Sequence[Load], share: float) -> list[Row]:
    """Put the medians of the pairs' ratios into rows."""
    ours, theirs = ([each.answers / each.cpu for each in loads] for loads in (limited, bare))
    return [
        Row(
            f"{what}, requests/s",
            "the bare app",
            median(mine / other for mine, other in zip(ours, theirs, strict=True)),
            "≥",
            0.85,
            f"{median(ours):,.0f}/s to {median(theirs):,.0f}/s of a core; {share:.2%} counted by the master",
        ),
        Row(
            f"{what}, p99",
            "the bare app",
            median(mine.p99 / other.p99 for mine, other in zip(limited, bare, strict=True)),
            "≤",
            1.5,
            f"{median(each.p99 for each in limited):.2f} ms to {median(each.p99 for each in bare):.2f} ms",
        ),
    ]
