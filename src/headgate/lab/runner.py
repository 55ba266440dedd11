"""Runs a scenario: one run for each policy and seed, in several processes, and a summary of them.

The module of a world has `run(scenario, policy, seed, *, record) -> Run`. The order of runs is that of the policies,
and within a policy that of the seeds. The result does not depend on the number of processes.
"""

import importlib
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, redirect_stdout
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from headgate.errors import ConfigurationError, HeadgateError, MissingExtra, SimulationError
from headgate.lab.processes import map_in_order
from headgate.lab.ranges import METRIC, Finding, judge
from headgate.lab.results import NO_SERIES, Metrics, Result, Run, Series, mean_series, quantile_series, thin
from headgate.lab.scenario import MAX_TICK_AGENTS, Scenario
from headgate.lab.summary import SUMMARIES
from headgate.lab.user_class import describe_error

WORLDS: Final[Mapping[str, str]] = {
    "ticks": "headgate.lab.ticks.world",
    "events": "headgate.lab.events.world",
    "rates": "headgate.lab.rates.world",
}
"""The module of each world."""
KERNEL: Final = "headgate.lab.kernel.world"
"""The vectorised world of scenarios in discrete time with more than `MAX_TICK_AGENTS` agents."""
MAX_RECORDED_SEEDS: Final = 100
"""Seeds of a policy whose series are kept until their mean is computed."""
MAX_SAMPLES: Final = 120
"""Samples of a recorded series: each is the mean of neighbouring ones. More cannot be seen in a plot."""


class Task(NamedTuple):
    """One run of a scenario."""

    policy: str
    seed: int
    record: bool = False
    """Whether its series are wanted."""

    def __str__(self) -> str:
        return f"policy {self.policy!r}, seed {self.seed}"


class _Done(NamedTuple):
    """A run without its series, unless they are wanted, and what its expectations measured."""

    run: Run
    measured: tuple[float, ...]


def count_agents(scenario: Scenario) -> int:
    """Return the number of agents of a scenario in discrete time; 0 for those of other worlds."""
    return sum(group.count for group in getattr(scenario, "agents", ())) if scenario.world == "ticks" else 0


def uses_kernel(scenario: Scenario) -> bool:
    """Return whether the vectorised world runs a scenario: it has more agents than the tick world allows."""
    return count_agents(scenario) > MAX_TICK_AGENTS


def _import_kernel() -> Any:
    try:
        return importlib.import_module(KERNEL)
    except ModuleNotFoundError as error:
        if error.name not in {"numba", "numpy"}:
            raise
        raise MissingExtra("lab", f"a simulation of more than {MAX_TICK_AGENTS:,} agents") from error


def run_one(scenario: Scenario, policy: str, seed: int, *, record: bool = False) -> Run:
    """Run a scenario's world once; `record` asks for its series.

    Raises `SimulationError`, which names policy and seed, for an error in the world or in a policy of the user's, and
    for a metric that is not finite.
    """
    task = Task(policy, seed)
    try:
        with redirect_stdout(sys.stderr):  # what a user's policy prints is not part of the result
            world = _import_kernel() if uses_kernel(scenario) else importlib.import_module(WORLDS[scenario.world])
            run: Run = world.run(scenario, policy, seed, record=record)
    except (ConfigurationError, KeyboardInterrupt):
        raise
    except HeadgateError as error:
        raise SimulationError(f"{task}: {error}") from error
    except BaseException as error:
        raise SimulationError(f"{task}: {describe_error(error)}") from error
    _check_metrics(run.metrics, task)
    return run


def _check_metrics(metrics: Metrics, task: Task) -> None:
    for name, value in metrics.items():
        for number in value if isinstance(value, list) else [value]:
            if not math.isfinite(number):
                raise SimulationError(f"{task}: the metric {name!r} is {number}; expected a finite number")


def _run_task(scenario: Scenario, task: Task) -> _Done:
    """Run one task and measure its expectations; the series stay in this process unless they are wanted."""
    expectations = scenario.expectations_of(task.policy)
    measures_series = any(expectation.statistic != METRIC for expectation in expectations)
    run = run_one(scenario, task.policy, task.seed, record=task.record or measures_series)
    measured = tuple(one.measure(run.metrics, run.series.times, run.series.values) for one in expectations)
    # The spread over seeds is that of what is plotted: one tick of one seed says little of either.
    series = thin(run.series, MAX_SAMPLES) if task.record else NO_SERIES
    return _Done(msgspec.structs.replace(run, series=series), measured)


def run_scenario(
    scenario: Scenario,
    *,
    processes: int = 1,
    record: bool = False,
    advance: Callable[[int], None] = lambda _more: None,
) -> Result:
    """Run all policies and seeds in `processes`; `advance` is called with 1 after each run.

    `record` asks for the series of the first `MAX_RECORDED_SEEDS` seeds. Several processes import the main module of
    the program again, as every process does that `multiprocessing` spawns: a script of your own needs
    `if __name__ == "__main__":`.
    """
    if uses_kernel(scenario):
        check = _import_kernel().check
        for policy in scenario.compared:  # before the first run, which may take a minute
            check(scenario, policy)
    seeds = scenario.seed_list
    recorded = min(len(seeds), MAX_RECORDED_SEEDS) if record else 0
    tasks = (Task(policy, seed, n < recorded) for policy in scenario.compared for n, seed in enumerate(seeds))
    work = partial(_run_task, scenario)
    runs: dict[str, list[Run]] = {policy: [] for policy in scenario.compared}
    findings: dict[str, tuple[Finding, ...]] = {}
    summed_up: dict[str, tuple[Series, Series, Series]] = {}
    with closing(map_in_order(work, tasks, processes=min(processes, len(runs) * len(seeds)))) as results:
        for policy, of_policy in runs.items():
            done = []
            for one in islice(results, len(seeds)):
                done.append(one)
                advance(1)
            of_policy += [msgspec.structs.replace(one.run, series=NO_SERIES) for one in done]
            findings[policy] = _judge(scenario, policy, [one.measured for one in done])
            summed_up[policy] = _sum_up([one.run.series for one in done[:recorded]])
    return Result(
        scenario=scenario.name,
        seeds=len(seeds),
        policies=SUMMARIES[scenario.summary](scenario, runs),
        series={policy: mean for policy, (mean, _, _) in summed_up.items()} if record else {},
        low={policy: low for policy, (_, low, _) in summed_up.items()} if record else {},
        high={policy: high for policy, (_, _, high) in summed_up.items()} if record else {},
        recorded=recorded,
        findings=findings if scenario.expect else {},
        control=scenario.control,
    )


def _sum_up(series: list[Series]) -> tuple[Series, Series, Series]:
    """Return the mean series of some seeds, and those that a tenth of the seeds stay below and exceed."""
    return mean_series(series), quantile_series(series, 0.1), quantile_series(series, 0.9)


def _judge(scenario: Scenario, policy: str, measured: list[tuple[float, ...]]) -> tuple[Finding, ...]:
    """Compare what the runs of a policy measured with its ranges."""
    return tuple(
        judge(expectation, [values[index] for values in measured])
        for index, expectation in enumerate(scenario.expectations_of(policy))
    )
