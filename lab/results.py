"""What runs return, and what a scenario makes of them: metrics, series over time, and findings on what was expected.

A metric is a number, or a list of numbers of a fixed length (one for each trial). NaN is what was not measured.
"""

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from lab.ranges import Finding

Metric = float | list[float]
"""A number, or a list of numbers."""
Metrics = dict[str, Metric]
"""Metrics by name, in the order in which reports print them."""


class Series(Struct, frozen=True):
    """Signals over time, all sampled at the same times; empty unless recording was asked for."""

    times: list[float] = []
    """Seconds since the start of the world, ascending."""
    values: dict[str, list[float]] = {}
    """One list for each signal, as long as `times`; NaN where the signal is undefined."""


NO_SERIES: Final = Series()
"""The series of a run that recorded nothing."""


class Run(Struct, frozen=True):
    """What a world returns for one law and one seed."""

    policy: str
    """The law."""
    seed: int
    metrics: Metrics
    """The same names for every seed of a scenario."""
    series: Series = NO_SERIES


class Result(Struct, frozen=True):
    """What a scenario gives: the mean over its seeds for each law."""

    scenario: str
    description: str
    seeds: int
    """The number of seeds."""
    policies: dict[str, Metrics]
    """By law, in the order of the scenario."""
    series: dict[str, Series] = {}
    """The mean series by law; empty unless recorded."""
    findings: dict[str, tuple[Finding, ...]] = {}
    """By law: whether each of its expectations holds; empty for a scenario without `[[expect]]`."""
    control: str = ""
    """The law that must leave the ranges; empty for none."""

    def within(self, policy: str) -> bool:
        """Return whether all expectations of a law hold."""
        return all(finding.within for finding in self.findings.get(policy, ()))

    @property
    def as_expected(self) -> bool:
        """Whether every law is within its ranges, and the control outside of one at least."""
        return all(self.within(policy) != (policy == self.control) for policy in self.findings)


def mean_metrics(runs: Sequence[Run]) -> Metrics:
    """Return the mean of each metric over runs that have the same metrics; lists element by element."""
    return {name: _mean([run.metrics[name] for run in runs]) for name in runs[0].metrics}


def _mean(values: Sequence[Metric]) -> Metric:
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return [_average(column) for column in zip(*lists, strict=True)]
    return _average([value for value in values if not isinstance(value, list)])


def _average(values: Sequence[float]) -> float:
    """Return the mean of the values that were measured (not NaN)."""
    present = [value for value in values if not math.isnan(value)]
    return math.fsum(present) / len(present) if present else math.nan


def mean_series(series: Sequence[Series]) -> Series:
    """Return the mean of each signal at each time, over series that are sampled at the same times."""
    first = series[0]
    columns = {name: zip(*(one.values[name] for one in series), strict=True) for name in first.values}
    return Series(first.times, {name: [_average(column) for column in of] for name, of in columns.items()})
