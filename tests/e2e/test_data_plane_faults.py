"""Parts of nginx and HAProxy with a sidecar are killed, stopped and reloaded under load: no request fails, holds stay.

docs/reliability.md has the figures, from `python -m bench data_plane_faults`.
"""

import pytest

from tests.e2e.fault_cases import Times
from tests.e2e.plane_faults import FAULTS, all_cases, check, run_fault

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
        marks = [pytest.mark.needs(plane.program), *deep]
        yield pytest.param(times, plane, name, marks=marks, id=f"{plane.name}, {name}, {times.during:g} s")


@pytest.mark.parametrize(
    ("times", "plane", "fault"),
    [*cases(TIMES, always=ALWAYS), *(case for case in cases(LONG) if "stopped" in case.values[2])],
)
def test_no_request_fails_and_holds_stay_in_force(tmp_path, times, plane, fault):
    check(run_fault(plane, FAULTS[fault], tmp_path, times))
