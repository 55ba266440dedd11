"""Each scenario of the suites keeps its ranges, and its control leaves them.

`make test` runs the first seed of those that take less than three seconds, `make test-deep` all seeds of all.
"""

import msgspec
import pytest

from lab.runner import run_scenario
from lab.scenario import read

SCENARIOS = {one.name: one for suite in ("inner", "outer") for one in read(suite)}
SLOW = {"bursts", "capacity-doubled", "day", "learn-large", "overload-hour", "slow-ten-minutes"}


def check(result):
    """Fail if a law leaves a range, or if its control keeps one: then that range judges nothing."""
    assert result.control, "a scenario with ranges needs a control that leaves them"
    for law, findings in result.findings.items():
        is_control = law == result.control
        assert [str(finding) for finding in findings if finding.within == is_control] == []


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - SLOW))
def test_the_first_seed_keeps_the_ranges_and_that_of_the_control_leaves_them(name):
    scenario = SCENARIOS[name]
    check(run_scenario(msgspec.structs.replace(scenario, seeds=scenario.seed_list[:1])))


@pytest.mark.deep
@pytest.mark.parametrize("name", SCENARIOS)
def test_all_seeds_keep_the_ranges_and_those_of_the_control_leave_them(name):
    check(run_scenario(SCENARIOS[name]))


def test_a_control_that_keeps_a_range_is_found():
    alike = {"control": "same", "laws": {"same": {"law": "concurrency"}}, "seeds": 1}
    with pytest.raises(AssertionError):
        check(run_scenario(msgspec.structs.replace(SCENARIOS["pulse"], **alike)))
