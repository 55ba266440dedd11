"""Parts of nginx and HAProxy with a sidecar are killed, stopped and reloaded under load: no request fails, holds stay.

docs/reliability.md has the figures.
"""

import math
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.e2e.fault_cases import Step, Times, freeze, kill, start, thaw
from tests.e2e.fault_figures import answered, failed, wrongly_rejected
from tests.e2e.fault_load import LoadPlan, Sample, running_load
from tests.e2e.plane_system import ACCEPTED, PLANES, REJECTED, Plane, PlaneSystem, running_plane

PLAN = LoadPlan(
    cold_identifiers=1_000_000_000,  # the rule permits one request of each
    hot_rate=0.0,
    held_rate=100.0,
    connections=16,
    repeats=True,
)
RELOADS = 3


@dataclass(frozen=True)
class PlaneFault:
    """A fault that begins, lasts and ends."""

    name: str
    begin: Step
    end: Step | None = None
    """None if the system restores itself within `begin`."""
    ends_server: bool = False
    """Whether the server, or a worker of it, does not run meanwhile: requests to it fail."""


def restart_sidecar(system: PlaneSystem) -> None:
    """End the sidecar as an update of it does, and start it, several times."""
    for _ in range(RELOADS):
        system.nodes["sidecar"].kill(signal.SIGTERM)
        system.nodes["sidecar"].start()


def reload_server(system: PlaneSystem) -> None:
    """Reload the server several times."""
    for _ in range(RELOADS):
        system.server.reload()


FAULTS = {
    fault.name: fault
    for fault in (
        PlaneFault("master killed", kill("master"), start("master")),
        PlaneFault("master stopped", freeze("master"), thaw("master")),
        PlaneFault("sidecar killed", kill("sidecar"), start("sidecar")),
        PlaneFault("sidecar stopped", freeze("sidecar"), thaw("sidecar")),
        PlaneFault("sidecar restarted", restart_sidecar),
        PlaneFault("server reloaded", reload_server),
        PlaneFault(
            "server restarted", lambda system: system.server.kill(signal.SIGTERM), start("server"), ends_server=True
        ),
        PlaneFault("server killed", kill("server"), start("server"), ends_server=True),
        PlaneFault("worker killed", lambda system: system.server.kill_worker(), ends_server=True),
        PlaneFault(
            "server and sidecar killed", kill("server", "sidecar"), start("server", "sidecar"), ends_server=True
        ),
    )
}


def all_cases() -> Iterator[tuple[Plane, str]]:
    """Yield each data plane with the names of its faults."""
    for plane in PLANES.values():
        for name in FAULTS:
            if plane.program == "nginx" or name != "worker killed":  # HAProxy has one worker, and ends with it
                yield plane, name


@dataclass(frozen=True)
class PlaneOutcome:
    """The requests of a load through a fault, with monotonic times."""

    plane: Plane
    fault: PlaneFault
    samples: Sequence[Sample]
    began: float
    ended: float
    limited: float
    """When accounting had an effect again."""
    emptied: Sequence[float]
    """When the server, or the sidecar that decides for it, began without holds."""
    admitted_afterwards: int
    """Held identifiers of which a request was admitted after the load."""

    @property
    def failed(self) -> list[Sample]:
        """Failed requests; without those to a server that did not run."""
        return [sample for sample in failed(self.samples) if not self._is_lost(sample)]

    def _is_lost(self, sample: Sample) -> bool:
        return self.fault.ends_server and sample.sent < self.ended and answered(sample) >= self.began

    @property
    def wrongly_rejected(self) -> list[Sample]:
        """Rejected requests of identifiers below the rule."""
        return wrongly_rejected(self.samples)

    @property
    def admitted(self) -> list[Sample]:
        """Admitted requests of identifiers that were held all the time, while something could reject them."""
        held = [sample for sample in self.samples if sample.kind == "held" and sample.status == ACCEPTED]
        if not self.plane.sidecar_decides or "sidecar" not in self.fault.name:
            return held
        return [sample for sample in held if sample.sent > self.limited or answered(sample) < self.began]

    @property
    def unexplained(self) -> list[Sample]:
        """Those that were admitted though no table of holds had been emptied."""
        first = min(self.emptied, default=math.inf)
        return [sample for sample in self.admitted if answered(sample) < first]


def run_fault(plane: Plane, fault: PlaneFault, folder: Path, times: Times, plan: LoadPlan = PLAN) -> PlaneOutcome:
    """Run a fault under load; the held identifiers of the plan are held when it begins."""
    with running_plane(plane) as system:
        plan = replace(plan, ports=[system.server.port])
        system.hold([f"held{number}" for number in range(plan.held_identifiers)])
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
            samples = load.finish()
        system.wait_until_limited()
        if plane.reload_empties:
            system.wait_until_held(plan.held_identifiers)
        elif fault.ends_server:
            time.sleep(_RESENDING)
        statuses = [system.get(f"held{number}") for number in range(plan.held_identifiers)]
    emptied, admitted = system.emptied, statuses.count(ACCEPTED)
    return PlaneOutcome(plane, fault, samples, began, ended, limited, emptied, admitted)


def check(outcome: PlaneOutcome, plan: LoadPlan = PLAN) -> None:
    """Assert that no request failed or was rejected wrongly, and that holds stayed in force or were sent again."""
    assert outcome.failed == []
    # "No requests will be delayed or rejected that would not have been otherwise" (smockron.txt, Fault-Tolerance).
    assert outcome.wrongly_rejected == []
    assert outcome.unexplained == []
    # Without the holds that are sent again, each identifier would be admitted once more.
    assert outcome.admitted_afterwards == 0
    assert len(outcome.admitted) <= max(1, len(outcome.emptied)) * plan.held_identifiers / 2


_RESENDING = 2.0
"""Seconds in which the holds have reached a new process of the server, also on a busy machine."""
TIMES = Times(before=0.5, during=1.0, after=1.0)
LONG = Times(before=0.5, during=10.0, after=2.0)
ALWAYS = {
    ("nginx-lua", "sidecar killed"),
    ("auth-request", "sidecar stopped"),
    ("haproxy", "server reloaded"),
}
"""The cases that every change is tested with; `make test-deep` has all."""


def cases(times, always=frozenset()):
    for plane, name in all_cases():
        deep = [] if (plane.name, name) in always else [pytest.mark.deep]
        marks = [pytest.mark.needs("nginx", plane.needed), *deep]
        yield pytest.param(times, plane, name, marks=marks, id=f"{plane.name}, {name}, {times.during:g} s")


@pytest.mark.parametrize(
    ("times", "plane", "fault"),
    [*cases(TIMES, always=ALWAYS), *(case for case in cases(LONG) if "stopped" in case.values[2])],
)
def test_no_request_fails_and_holds_stay_in_force(tmp_path, times, plane, fault):
    check(run_fault(plane, FAULTS[fault], tmp_path, times))


@pytest.mark.parametrize("name", ["nginx-lua", "haproxy"])
@pytest.mark.needs("nginx-lua", "haproxy")
def test_holds_outlast_a_sidecar_that_is_replaced_without_a_master(name):
    """The new sidecar knows no hold, and leaves those that the server has."""
    with running_plane(PLANES[name]) as system:
        held = [f"held{number}" for number in range(20)]
        system.hold(held)
        system.nodes["master"].kill()
        system.sidecar.restart()
        assert {system.get(client) for client in held} == {REJECTED}
        system.nodes["master"].start()
        system.wait_until_limited()
        assert {system.get(client) for client in held} == {REJECTED}
