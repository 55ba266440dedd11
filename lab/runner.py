"""Runs scenarios: one run for each law and seed, in several processes, and what is made of them.

The package of a world has `run(scenario, law, seed, *, record) -> Run`. The result does not depend on the number of
processes.
"""

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

from headgate.errors import HeadgateError
from lab import published
from lab.ranges import METRIC, Finding, judge
from lab.results import NO_SERIES, Result, Run, mean_metrics, mean_series
from lab.scenario import WORLDS, Scenario

Task = TypeVar("Task")
Value = TypeVar("Value")


class SimulationError(HeadgateError):
    """A run failed; the message names the law, the seed and the reason."""


class _Done(NamedTuple):
    """A run, and what its expectations measured."""

    run: Run
    measured: tuple[float, ...]


@contextmanager
def worker_processes() -> Iterator[Executor | None]:
    """Start a process for each processor; None if there is one only."""
    count = len(os.sched_getaffinity(0))
    if count == 1:
        yield None
        return
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def map_tasks(workers: Executor | None, work: Callable[[Task], Value], tasks: Iterable[Task]) -> Iterator[Value]:
    """Return the results of the tasks in their order."""
    return map(work, tasks) if workers is None else workers.map(work, tasks)


def run_one(scenario: Scenario, law: str, seed: int, *, record: bool = False) -> Run:
    """Run a scenario's world once; `record` asks for its series. Raises `SimulationError` for an error in a law."""
    world = importlib.import_module(WORLDS[scenario.world][0])
    try:
        run: Run = world.run(scenario, law, seed, record=record)
    except HeadgateError:
        raise
    except Exception as error:
        raise SimulationError(f"law {law!r}, seed {seed}: {type(error).__name__}: {error}") from error
    return run


def _run_task(scenario: Scenario, record: bool, task: tuple[str, int]) -> _Done:  # noqa: FBT001  # for `partial`
    measures_series = any(expectation.statistic != METRIC for expectation in scenario.expect)
    run = run_one(scenario, *task, record=record or measures_series)
    measured = tuple(one.measure(run.metrics, run.series.times, run.series.values) for one in scenario.expect)
    return _Done(Run(run.policy, run.seed, run.metrics, run.series if record else NO_SERIES), measured)


def run_scenario(scenario: Scenario, *, workers: Executor | None = None, record: bool = False) -> Result:
    """Run all laws and seeds; `record` asks for the mean series of each law."""
    seeds = scenario.seed_list
    tasks = [(law, seed) for law in scenario.compared for seed in seeds]
    done = map_tasks(workers, partial(_run_task, scenario, record), tasks)
    by_law = {law: list(islice(done, len(seeds))) for law in scenario.compared}
    return Result(
        scenario=scenario.name,
        description=scenario.description,
        seeds=len(seeds),
        policies={law: mean_metrics([one.run for one in of_law]) for law, of_law in by_law.items()},
        series={law: mean_series([one.run.series for one in of_law]) for law, of_law in by_law.items()}
        if record
        else {},
        findings={law: _judge(scenario, of_law) for law, of_law in by_law.items()} if scenario.expect else {},
        control=scenario.control,
    )


def _judge(scenario: Scenario, done: Sequence[_Done]) -> tuple[Finding, ...]:
    """Compare what the runs of a law measured with the ranges."""
    return tuple(
        judge(expectation, [one.measured[index] for one in done]) for index, expectation in enumerate(scenario.expect)
    )


def run_published(name: str, seeds: int, *, workers: Executor | None = None) -> Result:
    """Run one of the two published simulations for each of its policies."""
    simulation = published.SIMULATIONS[name]
    tasks = [(policy, seed) for policy in simulation.policies for seed in range(seeds)]
    done = iter(list(map_tasks(workers, simulation.run, tasks)))
    runs = {policy: list(islice(done, seeds)) for policy in simulation.policies}
    return Result(name, simulation.description, seeds, simulation.summarise(runs))
