"""The suite `outer`: the controller keeps to the ranges of each file, and the naive law leaves them."""

import msgspec
import pytest

from headgate.lab.runner import run_scenario
from headgate.lab.scenario_file import case_files, find, read_scenario

FILES = case_files(find("outer"), None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_law_keeps_to_the_ranges_and_the_control_does_not(path):
    """With the first seed; `headgate simulate outer` runs all."""
    result = run_scenario(msgspec.structs.replace(read_scenario(path), seeds=1))
    assert result.within("demand"), [str(finding) for finding in result.findings["demand"] if not finding.within]
    assert result.control
    assert not result.within(result.control)


def test_suite_has_the_cases_that_are_hard_for_naive_laws():
    assert len(FILES) >= 29
    laws = {(scenario.law, scenario.control) for scenario in map(read_scenario, FILES)}
    assert laws <= {("demand", "ratio"), ("demand", "aimd")}
