"""Runs a scenario: one run for each policy and seed, and a summary of them.

The module of a world has `run(scenario, policy, seed, *, record) -> Run`. The order of runs is that of the policies,
and within a policy that of the seeds.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Final

from headgate.lab.results import Result, Run, mean_series, quantile_series
from headgate.lab.scenario import MAX_TICK_AGENTS, Scenario
from headgate.lab.summary import SUMMARIES

WORLDS: Final[Mapping[str, str]] = {"ticks": "headgate.lab.ticks.world", "events": "headgate.lab.events.world"}
"""The module of each world."""
KERNEL: Final = "headgate.lab.kernel.world"
"""The vectorised world of scenarios in discrete time with more than `MAX_TICK_AGENTS` agents."""


def run_one(scenario: Scenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run a scenario's world once; `record` asks for its series."""
    agents = sum(group.count for group in getattr(scenario, "agents", ()))
    module = KERNEL if scenario.world == "ticks" and agents > MAX_TICK_AGENTS else WORLDS[scenario.world]
    run: Run = importlib.import_module(module).run(scenario, policy, seed, record=record)
    return run


def run_scenario(
    scenario: Scenario, *, record: bool = False, advance: Callable[[int], None] = lambda _more: None
) -> Result:
    """Run all policies and seeds; `advance` is called with 1 after each run."""
    runs: dict[str, list[Run]] = {policy: [] for policy in scenario.compared}
    for policy, done in runs.items():
        for seed in scenario.seed_list:
            done.append(run_one(scenario, policy, seed, record=record))
            advance(1)
    series = {policy: [run.series for run in done] for policy, done in runs.items()} if record else {}
    return Result(
        scenario=scenario.name,
        seeds=len(scenario.seed_list),
        policies=SUMMARIES[scenario.summary](scenario, runs),
        series={policy: mean_series(of_policy) for policy, of_policy in series.items()},
        low={policy: quantile_series(of_policy, 0.1) for policy, of_policy in series.items()},
        high={policy: quantile_series(of_policy, 0.9) for policy, of_policy in series.items()},
    )
