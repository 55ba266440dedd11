"""`headgate serve` with a concurrency limit, as a process before an origin that answers /slow when it is told to."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import programs
from tests.e2e.programs import Answer, Origin, Program


@pytest.fixture
def origin() -> Iterator[Origin]:
    with programs.origin() as running:
        yield running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


@contextmanager
def limited(folder: Path, origin: Origin, *arguments: object) -> Iterator[Program]:
    with programs.gate(folder, "--origin", origin.url, *arguments) as running:
        yield running


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
    with limited(tmp_path, origin, "--max-in-flight", "2", "--queue", "1") as gate:
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
    with limited(tmp_path, origin, "--max-in-flight", "3", "--queue", "5", "--workers", "2") as gate:
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
