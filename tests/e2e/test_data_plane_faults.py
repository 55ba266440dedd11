"""Parts of nginx and HAProxy with a sidecar are killed, stopped and reloaded under load: no request fails, holds stay.

docs/reliability.md has the figures.
"""

import pytest

from tests.e2e.fault_cases import Times
from tests.e2e.plane_faults import FAULTS, all_cases, check, run_fault
from tests.e2e.plane_system import PLANES, REJECTED, running_plane

TIMES = Times(before=0.5, during=1.0, after=1.0)
LONG = Times(before=0.5, during=10.0, after=2.0)
ALWAYS = {
    ("nginx-lua", "sidecar killed"),
    ("nginx-lua", "server reloaded"),
    ("auth-request", "sidecar stopped"),
    ("haproxy", "sidecar killed"),
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
        assert {system.get(client).status for client in held} == {REJECTED}
        system.nodes["master"].start()
        system.wait_until_limited()
        assert {system.get(client).status for client in held} == {REJECTED}
