"""`headgate serve` with a concurrency limit, as a process before an origin that answers /slow when it is told to."""

import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import webbundles
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


def test_a_gate_without_a_limit_shows_none(tmp_path: Path, origin: Origin) -> None:
    with limited(tmp_path, origin, "--rule", "1/s") as gate:
        assert concurrency(gate) is None
        assert "headgate_concurrency" not in gate.admin("/metrics")


def test_clients_that_leave_release_their_permits(tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor) -> None:
    with limited(tmp_path, origin, "--max-in-flight", "1", "--queue", "1") as gate:
        connections = [socket.create_connection(("127.0.0.1", gate.port)) for _ in range(2)]
        connections[0].sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        until(gate, in_flight=1)
        connections[1].sendall(b"GET /left HTTP/1.1\r\nHost: a\r\n\r\n")
        until(gate, in_flight=1, queued=1)
        connections[1].close()
        until(gate, in_flight=1, queued=0)
        waiting = asking(gate, pool)("/waiting")
        until(gate, in_flight=1, queued=1)
        # Closed without a reset, it would keep its permit until the origin answers: it may only have stopped sending.
        connections[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connections[0].close()
        assert waiting.result().status == 200
        until(gate, in_flight=0, queued=0)
        assert "/left" not in origin.seen


def test_a_drain_answers_the_requests_that_wait(tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor) -> None:
    with limited(tmp_path, origin, "--max-in-flight", "1") as gate:
        ask = asking(gate, pool)
        found = [ask("/slow")]
        until(gate, in_flight=1)
        found.append(ask("/waiting"))
        until(gate, queued=1)
        gate.process.send_signal(signal.SIGTERM)
        gate.until(lambda: gate.readyz() == "draining\n", "drain")
        origin.hold.set()
        assert [one.result().status for one in found] == [200, 200]
        assert gate.process.wait(programs.PATIENCE) == 0


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


def test_a_limit_below_the_number_of_workers_is_an_error(tmp_path: Path) -> None:
    code, said = programs.refused(
        tmp_path, "serve", "--origin", "http://127.0.0.1:1", "--max-in-flight", "1", "--workers", "2"
    )
    assert code == 2
    assert "limit.concurrency.max: each of 2 workers needs a permit, got 1" in said
    assert programs.refused(tmp_path, "serve", "--max-in-flight", "many")[0] == 2


def test_people_are_refused_last(tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor) -> None:
    settings = tmp_path / "classes.toml"
    settings.write_text(
        f'[gate]\norigin = "{origin.url}"\n[limit.concurrency]\nmax = 1\nqueue = 4\n'
        '[[domain]]\nname = "prefetch"\nheader = "Sec-Purpose"\nvalue = "prefetch"\npriority = "prefetch"\n'
        '[[domain]]\nname = "rest"\nrules = ["1000/s burst 1000"]\n'
    )
    with programs.gate(tmp_path, "--config", settings) as gate:
        slow = asking(gate, pool)("/slow")
        until(gate, in_flight=1)
        stop = threading.Event()

        def prefetches() -> list[int]:
            return [gate.get("/prefetch", Sec_Purpose="prefetch").status for _ in range(20) if not stop.is_set()]

        crowd = [pool.submit(prefetches) for _ in range(8)]
        gate.until(lambda: rejections(gate)["prefetch"] >= 4, "refused prefetches")
        person = asking(gate, pool)("/person")
        stop.set()
        gate.until(lambda: concurrency(gate)["queued"] >= 1 or person.done(), "person")
        origin.hold.set()
        assert slow.result().status == 200
        assert person.result().status == 200
        assert {status for one in crowd for status in one.result()} <= {200, 503}
        assert rejections(gate)["people"] == 0


def test_a_refusal_links_to_a_bundle_with_the_resource(
    tmp_path: Path, origin: Origin, pool: ThreadPoolExecutor
) -> None:
    webbundles.write(tmp_path / "site.wbn", {"url": "/page"})
    settings = tmp_path / "published.toml"
    settings.write_text(
        f'[gate]\norigin = "{origin.url}"\n[limit.concurrency]\nmax = 1\nqueue = 0\n'
        '[[bundle]]\nfile = "site.wbn"\npath = "/site.wbn"\n'
    )
    with programs.gate(tmp_path, "--config", settings) as gate:
        slow = asking(gate, pool)("/slow")
        until(gate, in_flight=1)
        refused = gate.get("/page")
        assert refused.status == 503
        assert refused.headers["Link"] == '</site.wbn>; rel="collection"; type="application/webbundle"'
        assert gate.get("/elsewhere").headers["Link"] is None
        assert gate.get("/site.wbn").body == (tmp_path / "site.wbn").read_bytes()
        origin.hold.set()
        assert slow.result().status == 200
