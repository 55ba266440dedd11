"""Parts of a system are killed, stopped and cut off under load: no request fails, and limits return.

"It attempts to preserve access to the resources it protects, even at the cost of potentially allowing some undesired
requests to pass" (smockron.txt, Fault-Tolerance). docs/reliability.md has the figures.
"""

import pytest

from tests.e2e.fault_cases import FAULTS, Times, check, run_fault
from tests.e2e.fault_load import LoadPlan

PLAN = LoadPlan()


ALWAYS = {"master killed", "master stopped", "router stopped", "Redis stopped"}
"""The faults that every change is tested with; `make test-deep` has all."""
SILENT = {name for name in FAULTS if "stopped" in name}
ON_STORE = {name for name in FAULTS if "Redis" in name}


def cases(times, names, *marks):
    return [pytest.param(times, name, marks=[pytest.mark.needs(*FAULTS[name].needs), *marks]) for name in names]


@pytest.mark.parametrize(
    ("times", "name"),
    [
        *cases(Times(), sorted(ALWAYS)),
        *cases(Times(), sorted(FAULTS.keys() - ALWAYS), pytest.mark.deep),
        # What is silent or does not end at once differs when it lasts longer: heartbeats are missed after 4 s, new
        # connections are tried every 2 s, and records for a store that does not answer wait for 30 s.
        *cases(Times(during=12.0, after=5.0), sorted(SILENT - ON_STORE), pytest.mark.deep),
        *cases(Times(during=32.0, after=5.0), sorted(SILENT & ON_STORE), pytest.mark.deep),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.during:g} s",
)
def test_no_request_fails_and_limits_return(tmp_path, times, name):
    check(run_fault(FAULTS[name], tmp_path, times, PLAN), PLAN)
