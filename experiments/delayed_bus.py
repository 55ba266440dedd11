"""What gatekeepers admit with a real master over loopback, with an added delay: the measured points of docs/scaling.md.

``python -m experiments.delayed_bus`` measures the cases of the curves and writes them to the file that
``experiments.over_admission`` reads; it takes seven minutes. The gatekeepers run in processes of their own:
``python -m experiments.delayed_bus gatekeepers …``.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import click
import msgspec

from experiments.bus_simulation import largest_excess
from experiments.delayed_forwarder import DelayedForwarder
from experiments.over_admission import ALGORITHMS, BATCH_DELAY, CURVES, GATEKEEPERS, MEASURED, Point
from headgate.limit import Gatekeeper, Rule
from headgate.limit.history import AlgorithmName
from headgate.link import GatekeeperLink
from headgate.release import Status

_MEASURED_DELAYS = (0.01, 0.05, 0.2, 1.0)
_TIMEOUT = 20.0
_CHECK_INTERVAL = 0.01
_START_DELAY = 0.1


class Load(msgspec.Struct, frozen=True):
    """The requests that one process offers to its gatekeepers in turn."""

    address: str
    rate: float
    """Requests per second, to all gatekeepers of the process."""
    seconds: float
    gatekeepers: int = 1
    first: float = 0.0
    """The time of the first request, in seconds after the start."""
    max_delay: float = 0.0


class Result(msgspec.Struct):
    """What a process has admitted; times are seconds since the common start."""

    releases: list[float]
    rejected: int
    seconds: float
    """The time of the last request."""


def run_on_bus(
    rule: str, algorithm: AlgorithmName, loads: Sequence[Load], *, port: int, control_delay: float
) -> Result:
    """Offer the loads, one process each, to gatekeepers of one master; their addresses are replaced.

    The control delay includes the delay of batches. Takes `port` to `port` + 3.
    """
    with ExitStack() as stack:
        stack.enter_context(_master(rule, algorithm, port + 2))
        stack.enter_context(DelayedForwarder(port, port + 2, max(0.0, control_delay - BATCH_DELAY) / 2))
        processes = [stack.enter_context(_process(f"tcp://127.0.0.1:{port}", load)) for load in loads]
        for process in processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise ChildProcessError(f"gatekeepers ended with {process.wait()} before they were connected")
        time.sleep(2 * control_delay)  # until the master knows the subscriptions of all
        start = time.time() + _START_DELAY
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{start!r}\n")
            process.stdin.flush()
        longest = max(load.seconds for load in loads)
        outputs = [process.communicate(timeout=longest + _TIMEOUT)[0] for process in processes]
    results = [msgspec.json.decode(output, type=Result) for output in outputs]
    return Result(
        sorted(release for result in results for release in result.releases),
        sum(result.rejected for result in results),
        max(result.seconds for result in results),
    )


@contextmanager
def _master(rule: str, algorithm: AlgorithmName, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "headgate", "master", "--listen", f"127.0.0.1:{port}"]
    command += ["--domain", f"api={rule}", "--algorithm", algorithm]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if re.match("ready", line):
                    break
            else:
                raise ChildProcessError(f"the master ended with {process.wait()}")
            yield
        finally:
            process.kill()


@contextmanager
def _process(address: str, load: Load) -> "Iterator[subprocess.Popen[str]]":
    text = msgspec.json.encode(msgspec.structs.replace(load, address=address)).decode()
    command = [sys.executable, "-m", "experiments.delayed_bus", "gatekeepers", text]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def _offer(load: Load) -> Result:
    """Connect, wait for the start, send the requests, and return what was admitted."""
    loop, links, gatekeepers = asyncio.get_running_loop(), list[GatekeeperLink](), list[Gatekeeper]()
    for _ in range(load.gatekeepers):
        link = GatekeeperLink(load.address, ["api"])
        gatekeeper = Gatekeeper(link.account, max_delay=load.max_delay)
        link.attach(gatekeeper)
        link.start(loop)
        links.append(link)
        gatekeepers.append(gatekeeper)
    deadline = time.monotonic() + _TIMEOUT
    while not all(link.has_master for link in links):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no master at {load.address} after {_TIMEOUT:g} s")
        await asyncio.sleep(_CHECK_INTERVAL)
    click.echo("connected")
    start = float(await asyncio.to_thread(sys.stdin.readline))
    result = Result([], 0, 0.0)
    for number in range(int(load.rate * load.seconds)):
        due = start + load.first + number / load.rate
        await asyncio.sleep(max(0.0, due - time.time()))  # also if it is late: the links need the event loop
        now = time.time()
        verdict = gatekeepers[number % load.gatekeepers].admit("api", b"client", now=now)
        result.seconds = now - start
        if verdict.status is Status.REJECTED:
            result.rejected += 1
        else:
            result.releases.append(verdict.release - start)
    for link in links:
        link.close()
    return result


def measured(port: int) -> Iterator[Point]:
    """Yield the measured points of the curves."""
    rule = Rule.parse(CURVES.rule)
    for algorithm, gatekeepers, delay in product(ALGORITHMS, GATEKEEPERS, _MEASURED_DELAYS):
        load = Load("", CURVES.rate * gatekeepers, CURVES.seconds, gatekeepers)
        result = run_on_bus(CURVES.rule, algorithm, [load], port=port, control_delay=delay)
        yield Point(algorithm, gatekeepers, delay, largest_excess(rule, result.releases), "measured")


@click.group(invoke_without_command=True)
@click.option("--port", default=20_004, show_default=True, help="The first of four free ports on loopback.")
@click.pass_context
def main(context: click.Context, port: int) -> None:
    """Measure the points of the curves and write them to the file of measured points."""
    if context.invoked_subcommand is None:
        points = []
        for point in measured(port):
            click.echo(f"{point.algorithm:10}{point.gatekeepers:>3}{point.control_delay:>7g} s{point.excess:>9.0f}")
            points.append(msgspec.structs.asdict(point))
        MEASURED.write_text(json.dumps(points, indent=1) + "\n")


@main.command()
@click.argument("load")
def gatekeepers(load: str) -> None:
    """Run the gatekeepers of one process: the load is JSON; the start is read from stdin, the result printed."""
    click.echo(msgspec.json.encode(asyncio.run(_offer(msgspec.json.decode(load, type=Load)))).decode())


if __name__ == "__main__":
    main()
