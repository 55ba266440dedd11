"""Each scenario of the suites keeps its ranges, and its control leaves one; all but one of each engine are deep."""

import msgspec
import pytest

from lab.runner import run_scenario
from lab.scenario import read

SCENARIOS = {f"{suite}/{one.name}": one for suite in ("inner", "outer") for one in read(suite)}


def check(result):
    """Fail if a law leaves a range, or if its control keeps all: then they judge nothing."""
    assert result.control, "a scenario with ranges needs a control that leaves them"
    for law, findings in result.findings.items():
        if law != result.control:
            assert [str(finding) for finding in findings if not finding.within] == []
    assert not result.within(result.control)


@pytest.mark.parametrize("name", ["inner/prefetches", "outer/step"])
def test_the_first_seed_keeps_the_ranges_and_that_of_the_control_leaves_them(name):
    scenario = SCENARIOS[name]
    check(run_scenario(msgspec.structs.replace(scenario, seeds=scenario.seed_list[:1])))


@pytest.mark.deep
@pytest.mark.parametrize("name", SCENARIOS)
def test_all_seeds_keep_the_ranges_and_those_of_the_control_leave_them(name):
    check(run_scenario(SCENARIOS[name]))
