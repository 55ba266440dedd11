"""Parts of a system are killed, stopped and cut off under load: no request fails, and limits return.

"It attempts to preserve access to the resources it protects, even at the cost of potentially allowing some undesired
requests to pass" (smockron.txt, Fault-Tolerance). docs/reliability.md has the figures, from `python -m bench faults`.
"""

import math

import pytest

from tests.e2e.fault_cases import FAULTS, Times, run_fault
from tests.e2e.fault_load import LoadPlan

PLAN = LoadPlan()
CONTROL_DELAY = 1.0  # seconds; on a busy machine, controls may take as long


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(*fault.needs)) for name, fault in FAULTS.items()]
)
@pytest.mark.parametrize(
    "times", [Times(), pytest.param(Times(during=30.0, after=5.0), marks=pytest.mark.deep)], ids=["short", "long"]
)
def test_no_request_fails_and_limits_return(tmp_path, name, times):
    outcome = run_fault(FAULTS[name], tmp_path, times, PLAN)
    assert outcome.failed == []
    # "No requests will be delayed or rejected that would not have been otherwise."
    assert outcome.wrongly_rejected == []
    slowest = max(sample.latency for sample in outcome.samples)
    admission = outcome.admission
    assert admission.under <= 2 + math.ceil(slowest * 2)
    assert admission.over <= PLAN.hot_rate * CONTROL_DELAY + (
        0 if FAULTS[name].keeps_limits else outcome.hot_since_fault
    )
