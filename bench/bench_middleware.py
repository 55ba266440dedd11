"""An ASGI application with the middleware against the same application bare.

Both are served by uvicorn on uvloop and httptools, one worker, pinned to one core where there are two; wrk asks over 32
keep-alive connections as 1000 identifiers, and the master of the limited one drains the accounting in a process of its
own. Every answer must be a 200, and the master must have counted at least 99 % of what wrk was answered.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which
from socket import create_connection, socket
from statistics import median

from bench.measure import Absent, Row, verify
from bench.middleware_app import ADDRESS

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
PAIRS_A_ROUND = 3
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


class Load:
    """What wrk saw in one run: answers, answers a second, and the 99th percentile of their time in milliseconds."""

    def __init__(self, text: str) -> None:
        self.answers = int(found(r"(\d+) requests in", text)[1])
        self.rate = float(found(r"Requests/sec:\s+([\d.]+)", text)[1])
        percentile = found(r"99%\s+([\d.]+)(us|ms|s)", text)
        self.p99 = float(percentile[1]) * UNITS[percentile[2]]
        verify(
            "every answer is a 200, and none is missing", right="Non-2xx" not in text and "Socket errors" not in text
        )


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
def serving(app: str, *options: str, **environment: str) -> Iterator[int]:
    """Serve an application of `bench.middleware_app` on a free port."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    flags = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error", *options]
    command = [sys.executable, "-m", "uvicorn", f"bench.middleware_app:{app}", "--port", str(port), *flags]
    with process(command, cores()[0], **environment) as server:
        for _ in range(200):
            verify("uvicorn keeps running", right=server.poll() is None)
            try:
                create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                break
        yield port


def load(port: int, script: Path, seconds: int) -> Load:
    """Ask for some seconds, as fast as answers come."""
    flags = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script)]
    command = ["wrk", *flags, f"http://127.0.0.1:{port}/"]
    with process(command, cores()[1]) as running:
        return Load(running.communicate()[0])


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
    for module in ("uvicorn", "uvloop"):
        if importlib.util.find_spec(module) is None:
            raise Absent(f"{module} is not installed; make venv")
    bare: list[Load] = []
    limited: list[Load] = []
    with ExitStack() as stack:
        script = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "identifiers.lua"
        script.write_text(SCRIPT)
        here = [sys.executable, "-m", "bench.middleware_app", "tcp://127.0.0.1:0"]
        master = stack.enter_context(process(here, cores()[1]))
        assert master.stdout is not None
        address = master.stdout.readline().strip()
        bare_port = stack.enter_context(serving("bare"))
        limited_port = stack.enter_context(serving("limited", "--factory", **{ADDRESS: address}))
        for port in (bare_port, limited_port):
            load(port, script, 1)
        before = counted(master)
        verify("the master has counted the first requests", right=before > 0)
        # Short turns in pairs: whatever else the machine does lasts longer than one, and falls on both.
        for turn in range(rounds * PAIRS_A_ROUND):
            pair = [(bare_port, bare), (limited_port, limited)]
            for port, loads in reversed(pair) if turn % 2 else pair:
                loads.append(load(port, script, 1))
        share = (counted(master) - before) / sum(each.answers for each in limited)
    verify(f"the master counted at least 99 % of the requests, and none twice: {share:.4f}", right=0.99 <= share < 1.01)
    return rows(bare, limited, share)


def rows(bare: list[Load], limited: list[Load], share: float) -> list[Row]:
    """Put the medians of the rounds' ratios into rows."""
    pairs = list(zip(bare, limited, strict=True))
    what = "ASGI app with the middleware"
    return [
        Row(
            f"{what}, requests/s",
            "the bare app",
            median(ours.rate / theirs.rate for theirs, ours in pairs),
            "≥",
            0.85,
            f"{median(each.rate for each in limited):,.0f}/s to {median(each.rate for each in bare):,.0f}/s; "
            f"raw ASGI on uvicorn, {share:.2%} counted by the master",
        ),
        Row(
            f"{what}, p99",
            "the bare app",
            median(ours.p99 / theirs.p99 for theirs, ours in pairs),
            "≤",
            1.5,
            f"{median(each.p99 for each in limited):.2f} ms to {median(each.p99 for each in bare):.2f} ms",
        ),
    ]
