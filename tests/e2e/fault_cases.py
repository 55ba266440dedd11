"""The faults: what each needs, how it begins and ends, and what was measured while it lasted.

The tests run them for a few seconds and assert what must hold.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.e2e.fault_figures import between, excess, failed, unlimited, wrongly_rejected
from tests.e2e.fault_load import LoadPlan, Sample, running_load
from tests.e2e.fault_node import Node
from tests.e2e.fault_system import DOMAIN, Shape, System, running_system

Step = Callable[[Any], None]
"""Does something to a `System`, or to another object that has nodes by name."""

CONTROL_DELAY = 1.0
"""Seconds from a request to its hold at every gate, on a machine with other work, if no probe shows that it is longer.
"""


@dataclass(frozen=True)
class Fault:
    """A fault that begins, lasts and ends."""

    name: str
    begin: Step
    end: Step | None
    """None if the system restores itself within `begin`."""
    shape: Shape = Shape()  # noqa: RUF009 - frozen
    lost_gates: frozenset[int] = frozenset()
    """Gates that are part of the fault: their clients fail or wait. The figures are those of the others."""
    keeps_limits: bool = False
    """Whether limits stay in force: the others do without the part that is lost."""
    ends_server: bool = False
    """Whether the server, or a worker of it, does not run meanwhile: requests to it fail."""
    needs: tuple[str, ...] = ("nginx",)
    """The programs that it needs."""


def each(action: Callable[[Node], None]) -> Callable[..., Step]:
    """Return the function that makes a step of the names of nodes: it does `action` to each of them."""

    def of(*names: str) -> Step:
        def step(system: System) -> None:
            for name in names:
                action(system.node(name))

        return step

    return of


kill, start, freeze, thaw = each(Node.kill), each(Node.start), each(Node.freeze), each(Node.thaw)


def signal_worker(name: str, number: int) -> Step:
    """Return the step that sends a signal to the first worker of a gate."""

    def step(system: System) -> None:
        os.kill(system.nodes[name].children()[0], number)

    return step


def nothing(_system: System) -> None:
    """Do nothing: the system restores itself."""


GATE1: dict[str, Any] = {"lost_gates": frozenset({1}), "keeps_limits": True}
WORKERS = Shape(workers=2)
ROUTED = Shape(masters=2, routers=1)
TWO_ROUTERS = Shape(masters=2, routers=2)
TWO_MASTERS = Shape(masters=2)
ON_REDIS = Shape(masters=2, store="redis")
EMBEDDED = Shape(masters=0, store="redis")
ON_CLUSTER = Shape(masters=2, store="cluster")
STORE: dict[str, Any] = {"keeps_limits": True, "needs": ("nginx", "redis-server")}
FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("master killed", kill("master"), start("master")),
        Fault("master stopped", freeze("master"), thaw("master")),
        Fault("gate killed", kill("gate1"), start("gate1"), **GATE1),
        Fault("gate stopped", freeze("gate1"), thaw("gate1"), **GATE1),
        Fault("worker killed", signal_worker("gate1", signal.SIGKILL), nothing, WORKERS, **GATE1),
        Fault(
            "worker stopped",
            signal_worker("gate1", signal.SIGSTOP),
            signal_worker("gate1", signal.SIGCONT),
            WORKERS,
            **GATE1,
        ),
        Fault("one of two masters killed", kill("master"), start("master"), TWO_MASTERS),
        Fault("one of two masters stopped", freeze("master"), thaw("master"), TWO_MASTERS),
        Fault("router killed", kill("router"), start("router"), ROUTED),
        Fault("router stopped", freeze("router"), thaw("router"), ROUTED),
        Fault("one of two routers killed", kill("router"), start("router"), TWO_ROUTERS),
        Fault("one of two routers stopped", freeze("router"), thaw("router"), TWO_ROUTERS),
        Fault("master behind a router killed", kill("master"), start("master"), ROUTED),
        Fault("master behind a router stopped", freeze("master"), thaw("master"), ROUTED),
        Fault("Redis killed", kill("redis"), start("redis"), ON_REDIS, **STORE),
        Fault("Redis stopped", freeze("redis"), thaw("redis"), ON_REDIS, **STORE),
        Fault("Redis of gates killed", kill("redis"), start("redis"), EMBEDDED, needs=STORE["needs"]),
        Fault("Redis of gates stopped", freeze("redis"), thaw("redis"), EMBEDDED, needs=STORE["needs"]),
        Fault("node of a Redis cluster killed", kill("redis0"), nothing, ON_CLUSTER, **STORE),
        Fault("node of a Redis cluster stopped", freeze("redis0"), thaw("redis0"), ON_CLUSTER, **STORE),
        Fault("one of two masters on Redis killed", kill("master"), start("master"), ON_REDIS, **STORE),
    )
}


SPARE_FILES = 8
"""Connections to the origin, and those of clients whose end has not arrived."""
PARTS = ("gate1", "master0", "router0", "redis")
"""Parts that are restarted in every order."""


@dataclass(frozen=True)
class Times:
    """Seconds of load before a fault, during it, and after it once limits are in force again."""

    before: float = 0.5
    during: float = 2.0
    after: float = 0.5


@dataclass(frozen=True)
class Outcome:
    """The requests of a load through a fault, with monotonic times."""

    fault: Fault
    samples: Sequence[Sample]
    """Without those of the lost gates."""
    lost: Sequence[Sample]
    """Those of the lost gates."""
    began: float
    ended: float
    limited: float
    """When accounting from each gate had an effect at every gate again."""


def run_under_load(
    fault: Fault, system: Any, plan: LoadPlan, folder: Path, times: Times
) -> tuple[list[Sample], float, float, float]:
    """Run a fault of a running system; return the requests, and when it began, had ended, and limits returned."""
    with running_load(plan, folder) as load:
        time.sleep(times.before)
        began = time.monotonic()
        fault.begin(system)
        ended = time.monotonic()
        time.sleep(times.during)
        if fault.end is not None:
            fault.end(system)
            ended = time.monotonic()
        system.wait_until_limited()
        limited = time.monotonic()
        time.sleep(times.after)
        return load.finish(), began, ended, limited


def run_fault(fault: Fault, folder: Path, times: Times, plan: LoadPlan | None = None) -> Outcome:
    """Run a fault under load; afterwards, assert that a burst is admitted exactly."""
    with running_system(folder, fault.shape) as system:
        plan = replace(plan or LoadPlan(), ports=[gate.port for gate in system.gates])
        samples, began, ended, limited = run_under_load(fault, system, plan, folder, times)
        system.check_limits()
    lost = [sample for sample in samples if sample.gate in fault.lost_gates]
    kept = [sample for sample in samples if sample.gate not in fault.lost_gates]
    return Outcome(fault, kept, lost, began, ended, limited)


def run_restarts(folder: Path, orders: Iterable[Sequence[str]]) -> list[Sample]:
    """Kill and start parts in each of the orders under load; after each, assert that a burst is admitted exactly.

    At the end, the gate that was not restarted has not more file descriptors than before.
    """
    with running_system(folder, Shape(routers=1, store="redis")) as system:
        before = system.gates[0].open_files()
        plan = LoadPlan([gate.port for gate in system.gates], cold_rate=50.0, hot_rate=5.0)
        with running_load(plan, folder) as load:
            for order in orders:
                for name in order:
                    system.nodes[name].restart()
                system.check_limits()
            samples = load.finish()
        assert system.gates[0].open_files() <= before + SPARE_FILES
        return samples


def check(outcome: Outcome, plan: LoadPlan) -> None:
    """Assert that no request failed or was rejected wrongly, and that more were admitted only without limits."""
    samples, everything = outcome.samples, [*outcome.samples, *outcome.lost]
    assert failed(samples) == []
    # "No requests will be delayed or rejected that would not have been otherwise" (smockron.txt, Fault-Tolerance).
    assert wrongly_rejected(samples) == []
    [rule] = DOMAIN.rules
    over, under = excess(everything, DOMAIN)
    slowest = max(sample.latency for sample in samples)
    assert under <= 2 + slowest / rule.interval
    seconds = CONTROL_DELAY + len(unlimited(samples)) / plan.probe_rate
    without_limits = 0
    if outcome.fault.keeps_limits:
        during = between(samples, outcome.began, outcome.ended)
        probes = [sample for sample in during if sample.kind == "probe"]
        assert len(unlimited(during)) <= len(probes) / 2
    else:  # until limits were in force again
        meanwhile = between(everything, outcome.began, outcome.limited)
        without_limits = sum(sample.kind == "hot" for sample in meanwhile)
    assert over <= without_limits + plan.hot_rate * seconds
