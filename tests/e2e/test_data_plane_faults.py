"""Parts of nginx and HAProxy with a sidecar are killed, stopped and reloaded under load: no request fails, holds stay.

docs/reliability.md has the figures.
"""

import math
import signal
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.e2e.fault_cases import Fault, Times, freeze, kill, run_under_load, start, thaw
from tests.e2e.fault_figures import answered, failed, wrongly_rejected
from tests.e2e.fault_load import LoadPlan
from tests.e2e.plane_system import ACCEPTED, PLANES, REJECTED, Plane, PlaneSystem, running_plane

PLAN = LoadPlan(
    cold_identifiers=1_000_000_000,  # the rule permits one request of each
    hot_rate=0.0,
    held_rate=100.0,
    connections=16,
    repeats=True,
)
RELOADS = 3


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
        Fault("master killed", kill("master"), start("master")),
        Fault("master stopped", freeze("master"), thaw("master")),
        Fault("sidecar killed", kill("sidecar"), start("sidecar")),
        Fault("sidecar stopped", freeze("sidecar"), thaw("sidecar")),
        Fault("sidecar restarted", restart_sidecar, None),
        Fault("server reloaded", reload_server, None),
        Fault("server restarted", lambda system: system.server.kill(signal.SIGTERM), start("server"), ends_server=True),
        Fault("server killed", kill("server"), start("server"), ends_server=True),
        Fault("worker killed", lambda system: system.server.kill_worker(), None, ends_server=True),
        Fault("server and sidecar killed", kill("server", "sidecar"), start("server", "sidecar"), ends_server=True),
    )
}


def all_cases() -> Iterator[tuple[Plane, str]]:
    """Yield each data plane with the names of its faults."""
    for plane in PLANES.values():
        for name in FAULTS:
            if plane.program == "nginx" or name != "worker killed":  # HAProxy has one worker, and ends with it
                yield plane, name


_RESENDING = 2.0
"""Seconds in which the holds have reached a new process of the server, also on a busy machine."""
TIMES = Times(before=0.5, during=1.0, after=1.0)
LONG = Times(before=0.5, during=10.0, after=2.0)
ALWAYS = {("nginx-lua", "sidecar killed"), ("auth-request", "sidecar stopped"), ("haproxy", "server reloaded")}
"""The cases that every change is tested with; `make test-deep` has all."""


def cases(times, always=frozenset()):
    for plane, name in all_cases():
        deep = [] if (plane.name, name) in always else [pytest.mark.deep]
        marks = [pytest.mark.needs("nginx", plane.needed), *deep]
        yield pytest.param(times, plane, name, marks=marks, id=f"{plane.name}, {name}, {times.during:g} s")


@pytest.mark.parametrize(
    ("times", "plane", "name"),
    [*cases(TIMES, always=ALWAYS), *(case for case in cases(LONG) if "stopped" in case.values[2])],
)
def test_no_request_fails_and_holds_stay_in_force(tmp_path, times, plane, name):
    fault, clients = FAULTS[name], [f"held{number}" for number in range(PLAN.held_identifiers)]
    with running_plane(plane) as system:
        system.hold(clients)
        plan = replace(PLAN, ports=[system.server.port])
        samples, began, ended, limited = run_under_load(fault, system, plan, tmp_path, times)
        system.wait_until_limited()
        if plane.reload_empties:
            system.wait_until_held(len(clients))
        elif fault.ends_server:
            time.sleep(_RESENDING)
        # Without the holds that are sent again, each identifier would be admitted once more.
        assert ACCEPTED not in {system.get(client) for client in clients}
    kept = [sample for sample in samples if not fault.ends_server or sample.sent >= ended or answered(sample) < began]
    assert failed(kept) == []
    # "No requests will be delayed or rejected that would not have been otherwise" (smockron.txt, Fault-Tolerance).
    assert wrongly_rejected(samples) == []
    admitted = [sample for sample in samples if sample.kind == "held" and sample.status == ACCEPTED]
    if plane.sidecar_decides and "sidecar" in name:  # meanwhile, nothing could reject them
        admitted = [sample for sample in admitted if sample.sent > limited or answered(sample) < began]
    first = min(system.emptied, default=math.inf)
    assert [sample for sample in admitted if answered(sample) < first] == []
    assert len(admitted) <= max(1, len(system.emptied)) * len(clients) / 2


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
