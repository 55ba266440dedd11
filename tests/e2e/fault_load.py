"""Load for the fault tests: requests at fixed rates over kept connections, each with its status and latency.

``python -m tests.e2e.fault_load PLAN`` (JSON of a `LoadPlan`) prints "ready", sends until its stdin ends, and then
prints one line of JSON for each request. It is a process of its own, so that what a test does meanwhile delays no
request. A request that is due is sent at once, also while earlier ones wait for their responses; its latency includes
the time for a connection.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import uvloop

from tests.servers import ROOT

PROBE_GAP = 0.25
"""Seconds between the two requests of a probe, in which the control of the first must reach the second gate."""

_MAX_CONNECTIONS = 256
_REQUEST = (
    "GET {path} HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: faults\r\nAccept: */*\r\nX-Client: {client}\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PATIENCE = 60.0


class LoadPlan(msgspec.Struct, frozen=True):
    """What is sent. Each stream uses the gates in turn; rates are requests a second over all gates."""

    ports: list[int] = []
    """The gates."""
    cold_rate: float = 100.0
    """Requests of many identifiers, each far below the rule."""
    cold_identifiers: int = 500
    hot_rate: float = 20.0
    """Requests of one identifier, above the rule."""
    probe_rate: float = 10.0
    """Pairs of requests: each pair has a new identifier that may send one, and uses two gates."""
    held_rate: float = 0.0
    """Requests of identifiers in turn that are held when the load begins."""
    held_identifiers: int = 400
    connections: int = 0
    """Kept connections to each gate that its requests use in turn, so that they reach every worker; 0: few."""
    repeats: bool = False
    """Whether a request on a kept connection that the server closes without a response is sent again on a new one, as
    browsers do: the server may close an idle connection while the request is on its way."""
    timeout: float = 30.0
    """Seconds for one request."""


class Sample(NamedTuple):
    """One request."""

    sent: float
    """Monotonic seconds."""
    latency: float
    status: int
    """0 if there was no response."""
    gate: int
    kind: str
    """`cold`, `hot`, `held`, `probe` (the first of a pair) or `echo` (the second)."""
    client: str
    error: str = ""


class Connection(asyncio.Protocol):
    """A kept connection with at most one request at a time; responses have a Content-Length."""

    def __init__(self) -> None:
        self.closed = False
        self.used = False
        """Whether it has had a response."""
        self._buffer = b""
        self._response: asyncio.Future[int] | None = None
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or self._response is None:
            return
        length = _LENGTH.search(head)
        if length is not None and len(body) >= int(length[1]):
            self._buffer = b""
            self.used = True
            if not self._response.done():
                self._response.set_result(int(head[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._response is not None and not self._response.done():
            self._response.set_exception(exc or ConnectionResetError("closed without a response"))

    @property
    def is_unanswered(self) -> bool:
        """Whether no byte of a response has arrived since the last one ended."""
        return not self._buffer

    async def send(self, request: bytes) -> int:
        """Send a request; return the status of its response."""
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._response

    def close(self) -> None:
        """Close it."""
        self.closed = True
        self._transport.abort()


class GateClient:
    """The connections to one gate."""

    def __init__(self, port: int, connections: int = 0, *, repeats: bool = False) -> None:
        self._port = port
        self._connections = connections
        self._repeats = repeats
        self._idle: deque[Connection] = deque()
        self._free = asyncio.Semaphore(_MAX_CONNECTIONS)

    async def send(self, request: bytes) -> int:
        """Send a request on a kept connection, or a new one; return the status."""
        async with self._free:
            connection = await self._connection()
            while True:
                try:
                    status = await connection.send(request)
                except BaseException as error:
                    connection.close()
                    is_stale = connection.used and connection.is_unanswered and isinstance(error, ConnectionError)
                    if not (self._repeats and is_stale):
                        raise
                    connection = await self._new_connection()
                else:
                    self._idle.append(connection)
                    return status

    async def _connection(self) -> Connection:
        while self._idle and len(self._idle) >= self._connections:
            connection = self._idle.popleft() if self._connections else self._idle.pop()
            if not connection.closed:
                return connection
        return await self._new_connection()

    async def _new_connection(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._port)
        return connection

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()


class Sender:
    """Sends what a plan says."""

    def __init__(self, plan: LoadPlan) -> None:
        self.samples: list[Sample] = []
        """The requests that have ended."""
        self._plan = plan
        self._gates = [GateClient(port, plan.connections, repeats=plan.repeats) for port in plan.ports]

    async def run(self, end: asyncio.Event) -> None:
        """Send until `end`; return when all requests have ended."""
        plan = self._plan
        streams = (
            (plan.cold_rate, self._cold),
            (plan.hot_rate, self._hot),
            (plan.held_rate, self._held),
            (plan.probe_rate, self._probe),
        )
        async with asyncio.TaskGroup() as requests:
            sending = [requests.create_task(self._repeat(rate, send, requests)) for rate, send in streams if rate]
            await end.wait()
            for stream in sending:
                stream.cancel()
        for gate in self._gates:
            gate.close()

    async def _repeat(
        self, rate: float, send: Callable[[int], Coroutine[Any, Any, None]], requests: asyncio.TaskGroup
    ) -> None:
        start = time.monotonic()
        number = 0
        while True:
            await asyncio.sleep(start + number / rate - time.monotonic())
            requests.create_task(send(number))
            number += 1

    async def _cold(self, number: int) -> None:
        await self._request("cold", number, f"cold{number % self._plan.cold_identifiers}")

    async def _hot(self, number: int) -> None:
        await self._request("hot", number, "hot")

    async def _held(self, number: int) -> None:
        await self._request("held", number, f"held{number % self._plan.held_identifiers}")

    async def _probe(self, number: int) -> None:
        echo = asyncio.create_task(asyncio.sleep(PROBE_GAP))
        await self._request("probe", number, f"probe{number}")
        await echo
        await self._request("echo", number + 1, f"probe{number}")

    async def _request(self, kind: str, number: int, client: str) -> None:
        gate = number % len(self._gates)
        path = "/probe" if kind in {"probe", "echo"} else f"/{kind}/{number}"
        request = _REQUEST.format(path=path, client=client).encode()
        status, error, sent = 0, "", time.monotonic()
        try:
            async with asyncio.timeout(self._plan.timeout):
                status = await self._gates[gate].send(request)
        except OSError as problem:  # TimeoutError is one
            error = f"{type(problem).__name__}: {problem}"
        self.samples.append(Sample(sent, time.monotonic() - sent, status, gate, kind, client, error))


class RunningLoad:
    """A load process that sends."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self._process = process
        self._output = output

    def finish(self) -> list[Sample]:
        """Stop sending, wait for the last responses, and return all requests in the order in which they were sent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(_PATIENCE) == 0
        lines = self._output.read_bytes().splitlines()[1:]
        return sorted(msgspec.json.decode(line, type=Sample) for line in lines)


@contextmanager
def running_load(plan: LoadPlan, folder: Path) -> Iterator[RunningLoad]:
    """Send load from a process of its own until `finish`, at most until the end of the block."""
    output = folder / f"load-{time.monotonic_ns()}.jsonl"
    command = [sys.executable, "-m", "tests.e2e.fault_load", msgspec.json.encode(plan).decode()]
    with output.open("wb") as written:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=written, cwd=ROOT)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not output.read_bytes():
            assert process.poll() is None, "the load process ended"
            assert time.monotonic() < deadline, "the load process does not start"
            time.sleep(0.01)
        yield RunningLoad(process, output)
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


async def main(plan: LoadPlan) -> None:
    """Send until the end of stdin, then print the samples."""
    end = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, end.set)  # it is never written to: readable means ended
    sender = Sender(plan)
    print("ready", flush=True)
    await sender.run(end)
    asyncio.get_running_loop().remove_reader(sys.stdin)
    sys.stdout.write("".join(msgspec.json.encode(sample).decode() + "\n" for sample in sender.samples))


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=LoadPlan)))
