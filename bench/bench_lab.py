"""The speed of simulations, in CPU time of one core; no peer, only the bounds.

An event is an attempt of an agent that is decided: sent or refused. The tick world runs the real throttle, advice and
gate; the compiled world runs a million agents. Before a time counts, both worlds have to return equal results, and the
policies have to have their effects.
"""

import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import TypeVar

from bench.measure import Row, verify
from headgate.lab.chance import Chance
from headgate.lab.kernel import world as kernel
from headgate.lab.policies.catalogue import find_policy
from headgate.lab.results import Run
from headgate.lab.scenario_file import find, read_scenario
from headgate.lab.ticks import world as ticks
from headgate.lab.ticks.settings import TickScenario

Result = TypeVar("Result")

LOADS = {"attack": (), "tournament": ("load=2",)}
MILLION = 1_000_000
WEIGHED = 100_000


def scenario(name: str, *changes: str, agents: int | None = None) -> TickScenario:
    """Read a scenario of the package."""
    read = read_scenario(find(name), changes, agents=agents)
    assert isinstance(read, TickScenario)
    return read


def seconds(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds of CPU that this thread spends on some work, and its result."""
    start = time.thread_time()
    result = work()
    return time.thread_time() - start, result


def events_of(world: ticks.World) -> int:
    """Return the attempts of all agents in a world without a warm-up."""
    return sum(counts.attempts for counts in world.counts.values())


def events_per_second(settings: TickScenario, policy: str) -> float:
    """Return the thousands of events a second of the tick world."""
    world = ticks.World(settings, find_policy(policy), Chance(0))
    taken, _ = seconds(lambda: world.run(record=False))
    verify(f"agents of {settings.name} attempt to send", right=events_of(world) > 100_000)
    verify("throttles refuse attempts", right=world.metrics()["local_refusals"] != 0)
    return events_of(world) / taken / 1000


def seconds_for_a_million(settings: TickScenario, policy: str) -> float:
    """Return the seconds of the compiled world for a run."""
    taken, run = seconds(lambda: kernel.run(settings, policy, 0))
    verify("agents send", right=any(run.metrics.values()))
    return taken


def verify_equal(name: str, policy: str) -> Run:
    """Return a short run of a scenario, which has to be equal in both worlds."""
    settings = scenario(name, "ticks=100", "warmup=20", *LOADS[name], agents=1000)
    run = kernel.run(settings, policy, 1, record=True)
    verify(f"both worlds agree on {name}", right=run == ticks.run(settings, policy, 1, record=True))
    return run


def bytes_each(policy: str) -> float:
    """Return the bytes of an agent in the tick world, at the end of a run under overload."""
    settings = scenario("tournament", "ticks=60", "warmup=0", "load=2", agents=WEIGHED)
    tracemalloc.start()
    try:
        world = ticks.World(settings, find_policy(policy), Chance(0))
        world.run(record=False)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    verify("all agents are there", right=len(world.agents) == WEIGHED)
    return size / WEIGHED


def _row(what: str, figures: list[float], target: float, *, at_least: bool = False) -> Row:
    context = f"best {max(figures) if at_least else min(figures):.3g} of {len(figures)} rounds, CPU time"
    return Row(what, "none", median(figures), "≥" if at_least else "≤", target, context)


def run(rounds: int) -> list[Row]:
    """Return a row for each bound."""
    for name in ("attack", "tournament"):
        plain, throttled = verify_equal(name, "none"), verify_equal(name, "draft")
        verify(f"the throttle changes the {name}", right=plain.metrics != throttled.metrics)
    attack = scenario("attack", "origins.site.capacity=3000", agents=10_000)
    rows = []
    for what, settings in (
        ("attack", attack),
        ("tournament at 2×", scenario("tournament", "ticks=400", "warmup=0", "load=2")),
        ("tournament at 4×", scenario("tournament", "ticks=400", "warmup=0", "load=4")),
    ):
        each = [events_per_second(settings, "draft") for _ in range(rounds)]
        rows.append(_row(f"thousand events/s, {what}, draft", each, 150.0, at_least=True))
    tournament = scenario("tournament", "load=2")
    each = [seconds(lambda: [ticks.run(tournament, one, 0) for one in tournament.policies])[0] for _ in range(rounds)]
    rows.append(_row("seconds, one seed of the tournament at 2×, seven policies", each, 30.0))
    for name in ("attack", "tournament"):
        settings = scenario(name, "ticks=600", "warmup=0", *LOADS[name], agents=MILLION)
        for policy in ("none", "draft"):
            each = [seconds_for_a_million(settings, policy) for _ in range(rounds)]
            rows.append(_row(f"seconds, {name}, {policy}, a million agents, 600 ticks", each, 60.0))
    size = bytes_each("draft")
    rows.append(Row("kB of an agent with a throttle, tick world", "none", size / 1000, "≤", 5.0, f"{WEIGHED:,} agents"))
    return rows
