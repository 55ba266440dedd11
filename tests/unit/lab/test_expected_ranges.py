"""Each scenario of the package that states ranges keeps them, and its negative control leaves them.

`make test` runs the first seed of most, `make test-deep` the seeds that the file states of all.
"""

import msgspec
import pytest

from headgate.lab.runner import run_scenario
from headgate.lab.scenario_file import FOLDER, read_scenario

FILES = {
    str(path.relative_to(FOLDER).with_suffix("")): path
    for path in sorted(FOLDER.rglob("*.toml"))
    if read_scenario(path).expect
}

SLOW = {
    "inner/bursts", "inner/capacity-doubled", "inner/day", "inner/learn-large", "inner/overload-hour",
    "inner/slow-ten-minutes", "prefetch",
}  # fmt: skip
"""Those of which one seed takes more than three seconds."""

ALIKE = {
    "crawl", "inner/bus", "inner/greedy-flow", "inner/refusals-0.02", "inner/refused-clients", "inner/start-overloaded",
    "inner/step-bimodal", "inner/step-lognormal", "inner/step-trace", "outer/lost-fetches-without-advice",
}  # fmt: skip
"""Those of which one seed takes about a second and a faster or similar one judges the same law."""


def outside(result, policy):
    return [str(finding) for finding in result.findings[policy] if not finding.within]


def check(result):
    """Fail if a law leaves a range, or if its control keeps one: then that range judges nothing."""
    assert result.control, "a scenario with ranges needs a control that leaves them"
    for policy in result.findings:
        if policy == result.control:
            kept = [str(finding) for finding in result.findings[policy] if finding.within]
            assert not kept
        else:
            assert not outside(result, policy)


@pytest.mark.parametrize("name", sorted(FILES.keys() - SLOW - ALIKE))
def test_the_first_seed_keeps_the_ranges_and_that_of_the_control_leaves_them(name):
    scenario = read_scenario(FILES[name])
    check(run_scenario(msgspec.structs.replace(scenario, seeds=scenario.seed_list[:1])))


def test_the_scenarios_that_are_left_out_exist():
    assert FILES.keys() >= SLOW | ALIKE


@pytest.mark.deep
@pytest.mark.parametrize("name", FILES)
def test_all_seeds_keep_the_ranges_and_those_of_the_control_leave_them(name):
    check(run_scenario(read_scenario(FILES[name])))


def test_a_control_that_keeps_a_range_is_found():
    scenario = read_scenario(FILES["inner/pulse"])
    swapped = msgspec.structs.replace(scenario, law="none", control="concurrency", seeds=1, seconds=40.0)
    with pytest.raises(AssertionError, match="assert not"):
        check(run_scenario(swapped))
    alike = msgspec.structs.replace(scenario, control="same", laws={"same": {"law": "concurrency"}}, seeds=1)
    with pytest.raises(AssertionError, match="assert not"):
        check(run_scenario(alike))
