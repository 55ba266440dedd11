"""The same load in the lab and through a real gate, side by side: `python -m bench.simulated_gate [SECONDS]`.

An origin answers each request after an exponential time of a second in the mean, however many there are. `headgate
serve` before it has a limit and a queue of 20, so that 20 requests a second are the capacity: so few that the speed of
the machine does not matter. Requests arrive at random instants, each on a connection of its own. Goodput is in
capacities, p99 in seconds. The first quarter of the time is not measured.
"""

import asyncio
import random
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from time import perf_counter
from typing import cast

import msgspec

from lab.events import EventScenario, run
from lab.ranges import quantile
from tests import servers

PERMITS, QUEUE, SERVICE, TIMEOUT, LOADS = 20, 20, 1.0, 30.0, (0.7, 1.0, 3.0)
CAPACITY = PERMITS / SERVICE
Figures = tuple[float, float, float]  # goodput, the share that was refused, p99


def simulate(load: float, seconds: float) -> Figures:
    """Run the load in the world of single requests."""
    document = {
        "description": "The load of a gate.", "world": "events", "policies": ["concurrency"], "seconds": seconds,
        "warmup": seconds / 4, "laws": {"concurrency": {"max": PERMITS, "queue": QUEUE}},
        "station": {"servers": PERMITS, "service": {"kind": "exponential", "mean": SERVICE}},
        "loads": [{"name": "clients", "load": load, "timeout": TIMEOUT}],
    }  # fmt: skip
    metrics = cast(dict[str, float], run(msgspec.convert(document, EventScenario), "concurrency", 0).metrics)
    return metrics["goodput"], metrics["refused"] / metrics["offered"], metrics["latency_p99"]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection of the origin, each after a random time."""
    with suppress(asyncio.CancelledError, asyncio.IncompleteReadError), closing(writer):
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(random.expovariate(1.0 / SERVICE))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def request(port: int) -> tuple[bytes, float]:
    """Send a request; return its status, and the seconds that it took."""
    began = perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
    with closing(writer):
        return (await reader.read())[9:12], perf_counter() - began


async def send(load: float, seconds: float, port: int) -> Figures:
    """Send the load to the gate at a port."""
    draw, due, begun, sent = random.Random(int(10 * load)), 0.0, perf_counter(), []
    while (due := due + draw.expovariate(load * CAPACITY)) < seconds:
        await asyncio.sleep(max(0.0, begun + due - perf_counter()))
        sent.append((due, asyncio.create_task(request(port))))
    answers = [await task for due, task in sent if due >= seconds / 4]
    served = [latency for status, latency in answers if status == b"200"]
    refused = sum(status == b"503" for status, _ in answers)
    return len(served) / (0.75 * seconds * CAPACITY), refused / len(answers), quantile(served, 0.99)


async def measure(load: float, seconds: float) -> Figures:
    """Send the load through a real gate to an origin that sleeps."""
    origin, port = await asyncio.start_server(answer, "127.0.0.1", 0), servers.free_port()
    async with origin:
        with tempfile.TemporaryDirectory() as name:
            ports = (origin.sockets[0].getsockname()[1], port)
            flags = "serve --origin http://127.0.0.1:{} --listen 127.0.0.1:{} --max-in-flight {} --queue {}"
            command = [sys.executable, "-m", "headgate", *flags.format(*ports, PERMITS, QUEUE).split()]
            with servers.started(command, port, Path(name)):
                return await send(load, seconds, port)


def main(seconds: float) -> None:
    """Print a row for each load and side."""
    print(f"{'load':>4}  {'':9}  goodput  refused    p99")
    for load in LOADS:
        sides = {"simulated": simulate(load, 20.0 * seconds), "real gate": asyncio.run(measure(load, seconds))}
        for name, (goodput, refused, p99) in sides.items():
            print(f"{load:4.1f}  {name}  {goodput:7.3f}  {refused:7.3f}  {p99:5.2f}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
