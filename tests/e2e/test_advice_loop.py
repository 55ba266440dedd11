"""`headgate serve` computes its traffic advice from the load of real agents, with shortened clocks.

No test expects a time: each waits until a state is reached, and the gate and the agents are slowed down alike.
"""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import programs
from tests.e2e.advice_agents import WINDOW, Load, agents, state_of, wait_until

CAPACITY = 20.0
"""Requests per second: so few that agents want far more on a busy machine, too."""
ADVICE = """
[advice]
mode = "{mode}"
capacity = "{capacity:g}/s"
max_age = 2
{more}
"""


def written(folder: Path, *, mode: str = "adaptive", capacity: float = CAPACITY, more: str = "") -> None:
    (folder / "headgate.toml").write_text(ADVICE.format(mode=mode, capacity=capacity, more=more))


def brought_down(load: Load) -> Any:
    """Return a test of a state: whether agents that want far more send what the capacity admits, and the gate knows."""

    def reached(state: dict[str, Any]) -> bool:
        wanted, sent = load.rate, load.rate * load.part_sent
        fits = wanted > 2 * CAPACITY and sent == pytest.approx(CAPACITY, rel=0.25)
        return bool(fits and state["demand"] == pytest.approx(wanted, rel=0.3) and 0.0 < state["fraction"] < 0.6)

    return reached


@pytest.fixture
def origin():
    with programs.origin() as running:
        yield running


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.deep), 2])
def test_polite_agents_come_down_to_the_capacity(tmp_path, origin, workers):
    written(tmp_path)

    async def check(gate: programs.Program) -> None:
        load = Load()
        async with agents(gate.port, load, count=16, rate=10.0):
            await wait_until(gate, "*", brought_down(load))
            await asyncio.sleep(WINDOW)  # so that no request is counted twice
            await wait_until(gate, "*", brought_down(load))
        assert 'headgate_advice_fraction{kind="published",user_agent="*"}' in gate.admin("/metrics")
        assert "traffic advice: prefetch-proxy" in gate.said()

    with programs.gate(tmp_path, "--origin", origin.url, "--workers", workers) as gate:
        asyncio.run(check(gate))


def advice_of(gate: programs.Program) -> dict[str, float]:
    """Fetch the document; return the fractions."""
    entries = json.loads(gate.get("/.well-known/traffic-advice", User_Agent="Reader").body)
    return {entry["user_agent"]: 0.0 if entry.get("disallow") else entry.get("fraction", 1.0) for entry in entries}


def test_a_reload_changes_the_mode_in_each_worker(tmp_path, origin):
    written(tmp_path)
    with programs.gate(tmp_path, "--origin", origin.url, "--workers", 2) as gate:
        assert advice_of(gate) == {"prefetch-proxy": 1.0, "*": 1.0}
        written(tmp_path, more='[[advice.entry]]\nuser_agent = "*"\nfraction = "auto"\n')
        gate.process.send_signal(signal.SIGHUP)
        gate.until(lambda: advice_of(gate) == {"*": 1.0}, "own entry")
        written(tmp_path, mode="monitor")
        gate.process.send_signal(signal.SIGHUP)
        gate.until(lambda: advice_of(gate) == {"prefetch-proxy": 1.0, "*": 1.0}, "monitor")
        (tmp_path / "headgate.toml").write_text('[[advice]]\nuser_agent = "*"\ndisallow = true\n')
        gate.process.send_signal(signal.SIGHUP)
        gate.wait_for("no rule")  # a static gate without a rule has nothing to do, and the old one stays in force
        gate.until(lambda: advice_of(gate)["*"] == 1.0, "monitor in each worker")


SLOW_ORIGIN = """
import asyncio

async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            async with places:
                await asyncio.sleep(0.04)
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    except (OSError, asyncio.IncompleteReadError):
        writer.close()

async def main():
    global places
    places = asyncio.Semaphore(2)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@pytest.mark.deep
def test_a_capacity_is_learned_under_load(tmp_path):
    written(tmp_path)
    path = tmp_path / "headgate.toml"
    limit = '[limit.concurrency]\nmax = "learned"\nhealthy_latency = 1\nqueue = 8\n'
    path.write_text(path.read_text().replace('"20/s"', '"learned"') + limit)

    async def check(gate: programs.Program) -> None:
        load = Load()
        # Fewer than about 50 clients that wait for responses would all be let in at the start.
        async with agents(gate.port, load, count=120, rate=2.0):
            assert (await state_of(gate, "*"))["reason"] in {"start", "frozen"}
            await wait_until(gate, "*", lambda state: 0.0 < state["fraction"] < 0.6)

    with subprocess.Popen([sys.executable, "-c", SLOW_ORIGIN], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with programs.gate(tmp_path, "--origin", f"http://127.0.0.1:{port}") as gate:
                asyncio.run(check(gate))
                assert gate.end() == 0
        finally:
            process.kill()
