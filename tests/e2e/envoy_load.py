"""Load for Envoys: streams of requests at exact rates, each to one Envoy, with the status of every request.

``python -m tests.e2e.envoy_load PLAN`` (JSON of a `Plan`) prints the monotonic instant at which it begins to send, and
at the end one line of JSON for each request. It is a process of its own, so that what a test does meanwhile delays no
request. A request that is due is sent at once, also while earlier ones wait for their responses.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from tests.e2e.envoy_setup import FIRST
from tests.e2e.fault_load import GateClient
from tests.servers import ROOT

ADMITTED = 200
REJECTED = 429

_LATE = 0.05
"""Seconds: half of what the rule of 500/s burst 50 makes up for."""
_MAX_LATE_PART = 0.01
_PATIENCE = 60.0


class Stream(msgspec.Struct, frozen=True):
    """Requests to one Envoy at one rate."""

    port: int
    rate: float
    """Requests a second."""
    end: float
    """Seconds after the beginning of the load."""
    begin: float = 0.0
    client: str = ""
    """Value of X-Client, in Latin-1; empty sends none."""

    @property
    def request(self) -> bytes:
        """The bytes of each request."""
        field = f"X-Client: {self.client}\r\n" if self.client else ""
        return f"GET / HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: load\r\n{field}\r\n".encode("latin-1")


class Plan(msgspec.Struct, frozen=True):
    """What is sent."""

    streams: list[Stream]
    timeout: float = 5.0
    """Seconds for one request."""


class Sample(NamedTuple):
    """One request."""

    sent: float
    """Seconds after the beginning of the load at which it was due."""
    stream: int
    """The index of its stream."""
    status: int
    """0 if there was no response."""
    delay: float
    """Seconds from the instant at which it was due to its response."""
    error: str = ""


class Outcome:
    """What came of a load: admitted requests by second, and failures."""

    def __init__(self, plan: Plan, samples: list[Sample]) -> None:
        self._plan = plan
        self._samples = samples

    def count(self, begin: float, end: float, *, port: int = 0, status: int = ADMITTED) -> int:
        """Return how many requests that were due from `begin` until `end`, to one Envoy or to all, got a status."""
        return sum(
            begin <= sample.sent < end
            and sample.status == status
            and port in {0, self._plan.streams[sample.stream].port}
            for sample in self._samples
        )

    def rate(self, begin: float, end: float, *, port: int = 0) -> float:
        """Return the admitted requests a second."""
        return self.count(begin, end, port=port) / (end - begin)

    def each_second(self, begin: int, end: int, *, port: int = 0) -> list[int]:
        """Return the admitted requests of each second."""
        return [self.count(second, second + 1, port=port) for second in range(begin, end)]

    def failures(self) -> list[Sample]:
        """Return the requests that were neither admitted nor rejected."""
        return [sample for sample in self._samples if sample.status not in {ADMITTED, REJECTED}]

    @property
    def is_on_time(self) -> bool:
        """Whether the load was as planned: a machine that stalls makes bursts of it, which a rule refuses."""
        return sum(sample.delay > _LATE for sample in self._samples) <= _MAX_LATE_PART * len(self._samples)

    def describe(self) -> str:
        """Return the admitted requests of each second by Envoy, for a failing test and for a person."""
        end = int(max(stream.end for stream in self._plan.streams))
        ports = sorted({stream.port for stream in self._plan.streams})
        lines = [f"{port}: {self.each_second(0, end, port=port)}" for port in ports]
        return "\n".join([*lines, f"failures: {self.failures()[:5]}"])


class RunningLoad:
    """A load process that sends."""

    def __init__(self, plan: Plan, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self._plan = plan
        self._process = process
        self._output = output
        self._began = float(output.read_bytes().splitlines()[0])

    def wait_until(self, instant: float) -> None:
        """Wait until some seconds after the beginning of the load."""
        time.sleep(max(0.0, self._began + instant - time.monotonic()))

    def now(self) -> float:
        """Return the seconds since the beginning of the load."""
        return time.monotonic() - self._began

    def finish(self) -> Outcome:
        """Wait for the end of all streams."""
        end = max(stream.end for stream in self._plan.streams)
        assert self._process.wait(end + self._plan.timeout + _PATIENCE) == 0
        lines = self._output.read_bytes().splitlines()[1:]
        return Outcome(self._plan, [msgspec.json.decode(line, type=Sample) for line in lines])


@contextmanager
def running_load(plan: Plan, folder: Path) -> Iterator[RunningLoad]:
    """Send load from a process of its own until `finish`, at most until the end of the block."""
    output = folder / f"load-{time.monotonic_ns()}.jsonl"
    command = [*FIRST, sys.executable, "-m", "tests.e2e.envoy_load", msgspec.json.encode(plan).decode()]
    with output.open("wb") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, cwd=ROOT)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not output.read_bytes().endswith(b"\n"):
            assert process.poll() is None, "the load process ended"
            assert time.monotonic() < deadline, "the load process does not start"
            time.sleep(0.01)
        yield RunningLoad(plan, process, output)
    finally:
        process.kill()
        process.wait()


class Sender:
    """Sends what a plan says."""

    def __init__(self, plan: Plan) -> None:
        self.samples: list[Sample] = []
        """The requests that have ended."""
        self._plan = plan
        self._clients = [GateClient(stream.port) for stream in plan.streams]

    async def run(self, began: float) -> None:
        """Send all streams; return when all requests have ended."""
        async with asyncio.TaskGroup() as requests:
            for number, stream in enumerate(self._plan.streams):
                requests.create_task(self._stream(number, stream, began, requests))
        for client in self._clients:
            client.close()

    async def _stream(self, number: int, stream: Stream, began: float, requests: asyncio.TaskGroup) -> None:
        for count in range(round((stream.end - stream.begin) * stream.rate)):
            due = stream.begin + count / stream.rate
            await asyncio.sleep(began + due - time.monotonic())
            requests.create_task(self._request(number, stream.request, began, due))

    async def _request(self, number: int, request: bytes, began: float, due: float) -> None:
        status, error = 0, ""
        try:
            async with asyncio.timeout(self._plan.timeout):
                status = await self._clients[number].send(request)
        except OSError as problem:  # TimeoutError is one
            error = f"{type(problem).__name__}: {problem}"
        self.samples.append(Sample(due, number, status, time.monotonic() - began - due, error))


async def main(plan: Plan) -> None:
    """Send everything, then print the samples."""
    sender = Sender(plan)
    began = time.monotonic()
    print(began, flush=True)
    await sender.run(began)
    sys.stdout.write("".join(msgspec.json.encode(sample).decode() + "\n" for sample in sender.samples))


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
