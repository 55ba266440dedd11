"""`headgate serve` with a concurrency limit, as a process before an origin that answers /slow when it is told to."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import programs
from tests.e2e.gateway_setup import origin_running
from tests.e2e.programs import Answer, Origin, Program


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def concurrency(gate: Program) -> Any:
    return gate.state()["concurrency"]


def rejections(gate: Program) -> dict[str, int]:
    """Return the number of rejected requests by priority."""
    return {priority: sum(reasons.values()) for priority, reasons in concurrency(gate)["rejected"].items()}


def until(gate: Program, **expected: int) -> None:
    """Wait until the limit has these figures."""

    def reached() -> bool:
        found = concurrency(gate)
        return {name: found[name] for name in expected} == expected

    gate.until(reached, f"{expected}")


Ask = Callable[[str], "Future[Answer]"]


def asking(gate: Program, pool: ThreadPoolExecutor) -> Ask:
    port = gate.port
    return lambda path: pool.submit(programs.request, port, path)


def test_requests_start_wait_or_are_refused(tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor) -> None:
    with programs.gate(tmp_path, "--origin", origin.url, "--max-in-flight", "2", "--queue", "1") as gate:
        ask = asking(gate, pool)
        slow = [ask("/slow") for _ in range(2)]
        until(gate, in_flight=2)
        waiting = ask("/waiting")
        until(gate, in_flight=2, queued=1)
        refused = gate.get("/refused")
        assert refused.status == 503
        seconds = refused.headers["Retry-After"]
        assert int(seconds) >= 1
        assert refused.headers["RateLimit"] == f'"concurrency";r=0;t={seconds}'
        assert refused.headers["Cache-Control"] == "no-store"
        gate.until(lambda: len(origin.seen) == 2, "requests in flight at the origin")
        assert origin.seen == ["/slow", "/slow"]
        origin.hold.set()
        assert [one.result().status for one in (*slow, waiting)] == [200, 200, 200]
        until(gate, limit=2, in_flight=0, queued=0)
        found = concurrency(gate)
        assert found["mode"] == "enforce"
        assert rejections(gate) == {"people": 1, "verified": 0, "automated": 0, "prefetch": 0}
        metrics = gate.admin("/metrics")
        assert "headgate_concurrency_limit 2.0\n" in metrics
        assert 'headgate_concurrency_rejected_total{priority="people",reason="full"} 1.0\n' in metrics
        gate.wait_for(r"concurrency limit: rejects requests \(limit 2, .* 1 rejected so far\)$")


def test_a_reload_keeps_the_requests_that_wait(tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor) -> None:
    settings = tmp_path / "limited.toml"

    def write(limit: str) -> None:
        settings.write_text(f'[gate]\norigin = "{origin.url}"\n[[domain]]\nname = "a"\nrules = ["100/s"]\n{limit}')

    write("[limit.concurrency]\nmax = 1\n")
    with programs.gate(tmp_path, "--config", settings) as gate:
        ask = asking(gate, pool)
        found = [ask("/slow")]
        until(gate, in_flight=1)
        found += [ask("/slow"), ask("/slow"), ask("/slow")]
        until(gate, queued=3)
        for limit, in_flight, queued in (("max = 1\nqueue = 9", 1, 3), ("max = 2", 2, 2), ("max = 3", 3, 1)):
            write(f"[limit.concurrency]\n{limit}\n")
            gate.process.send_signal(signal.SIGHUP)
            until(gate, in_flight=in_flight, queued=queued)
        write("")
        gate.process.send_signal(signal.SIGHUP)
        gate.until(lambda: concurrency(gate) is None, "end of the limit")
        gate.until(lambda: len(origin.seen) == 4, "start of the last request")
        write("[limit.concurrency]\nmax = 1\n")
        gate.process.send_signal(signal.SIGHUP)
        gate.until(lambda: concurrency(gate) is not None, "limit")
        origin.hold.set()
        assert [one.result().status for one in found] == [200] * 4
        assert gate.get("/").status == 200
        until(gate, in_flight=0, queued=0)


def test_workers_have_parts_of_the_limit(tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor) -> None:
    with programs.gate(
        tmp_path, "--origin", origin.url, "--max-in-flight", "3", "--queue", "5", "--workers", "2"
    ) as gate:
        gate.until(lambda: (concurrency(gate) or {}).get("limit") == 3, "both workers")
        slow = [asking(gate, pool)("/slow") for _ in range(16)]
        gate.until(lambda: sum(one.done() for one in slow) >= 8, "refusals")
        found = concurrency(gate)
        assert found["in_flight"] <= 3
        assert found["queued"] <= 5
        origin.hold.set()
        statuses = sorted(one.result().status for one in slow)
        assert statuses.count(503) == sum(rejections(gate).values()) >= 8
        until(gate, in_flight=0, queued=0)


def at_origin(gate: Program) -> tuple[int, int]:
    """Return how many requests count as in flight, and how many others are at the origin."""
    found = concurrency(gate)
    return found["in_flight"], found["uncounted"]


async def send(gate: Program, path: bytes) -> asyncio.StreamWriter:
    """Send a request, and read the beginning of an event stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
    if path == b"/events":
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    return writer


async def settled(gate: Program, expected: tuple[int, int]) -> None:
    """Wait until as many requests are at the origin."""
    await asyncio.to_thread(gate.until, lambda: at_origin(gate) == expected, str(expected))


def test_uncounted_streams_and_held_permits_are_in_the_state(tmp_path: Path) -> None:
    """The limit is 1: a stream beside it, and the permit of a client that left until the origin answers, or in time."""
    answer, arrived = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/events" not in head:
            arrived.set()
        if b"/slow" in head:
            await answer.wait()
        if b"/never" not in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()

    def gate(port: int, timeout: float) -> AbstractContextManager[Program]:
        (tmp_path / "limit.toml").write_text(
            f'[gate]\norigin = "http://127.0.0.1:{port}"\ntimeouts.response = {timeout}\n'
            '[limit.concurrency]\nmax = 1\nqueue = 0\nabandoned = "hold"\n'
            '[[domain]]\nname = "events"\npath_prefix = "/events"\nstreams = "uncounted"\n'
        )
        return programs.gate(tmp_path, "--config", tmp_path / "limit.toml")

    async def check() -> None:
        async with origin_running(serve) as origin:
            with gate(origin.port, 60) as patient:
                streams = [await send(patient, b"/events") for _ in range(3)]
                await settled(patient, (0, 3))
                for stream in streams:
                    stream.close()
                await settled(patient, (0, 0))
                client = await send(patient, b"/slow")
                await arrived.wait()  # a request that the origin has not received holds nothing
                await settled(patient, (1, 0))
                client.close()
                await asyncio.sleep(0.3)
                assert at_origin(patient) == (1, 0)
                assert (await asyncio.to_thread(patient.get)).status == 503
                answer.set()
                await settled(patient, (0, 0))
            arrived.clear()
            with gate(origin.port, 1) as impatient:  # what is held until its timeout may end before it is seen
                client = await send(impatient, b"/never")
                await arrived.wait()
                client.close()
                await settled(impatient, (0, 0))

    asyncio.run(check())
