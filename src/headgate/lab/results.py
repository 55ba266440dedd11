"""What runs return, and what a scenario makes of them: metrics, series over time, and findings on what was expected.

A metric is a number, or a list of numbers of a fixed length (one for each trial). All are finite.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from headgate.lab.ranges import Finding

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
    """What a world returns for one policy and one seed."""

    policy: str
    """The policy, or the law in a file of a suite."""
    seed: int
    metrics: Metrics
    """The same names for every seed of a scenario."""
    series: Series = NO_SERIES


class Result(Struct, frozen=True):
    """What a scenario gives: the mean over its seeds for each policy."""

    scenario: str
    seeds: int
    """The number of seeds."""
    policies: dict[str, Metrics]
    """By policy, in the order of the scenario."""
    series: dict[str, Series] = {}
    """The mean series by policy; empty unless recorded."""
    low: dict[str, Series] = {}
    """As `series`: at each time and for each signal, the value that one seed in ten stays below."""
    high: dict[str, Series] = {}
    """As `series`: the value that one seed in ten exceeds."""
    recorded: int = 0
    """The number of seeds, the first ones, that the three series are made of."""
    findings: dict[str, tuple[Finding, ...]] = {}
    """By policy: whether each of its expectations holds; empty for a scenario without `[[expect]]`."""
    control: str = ""
    """The policy that must leave the ranges; empty for none."""

    def within(self, policy: str) -> bool:
        """Return whether all expectations of a policy hold."""
        return all(finding.within for finding in self.findings.get(policy, ()))

    @property
    def as_expected(self) -> bool:
        """Whether every policy is within its ranges, and the control outside of one at least."""
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
    return math.fsum(values) / len(values)


def thin(series: Series, length: int) -> Series:
    """Return a series of at most `length` samples, each the mean of neighbours, without those that are NaN."""
    width = -(-len(series.times) // length) or 1
    values = {name: _thin(of_signal, width) for name, of_signal in series.values.items()}
    return Series(_thin(series.times, width), values)


def _thin(values: Sequence[float], width: int) -> list[float]:
    return [_mean_present(values[start : start + width]) for start in range(0, len(values), width)]


def _mean_present(values: Sequence[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    return _average(present) if present else math.nan


def mean_series(series: Iterable[Series]) -> Series:
    """Return the mean of each signal at each time, over series that are sampled at the same times.

    A value that is NaN is left out; where all are, the mean is NaN.
    """
    return _combine(series, _average)


def quantile_series(series: Iterable[Series], share: float) -> Series:
    """Return the quantile of each signal at each time, interpolated linearly; NaN is left out as for the mean."""
    return _combine(series, lambda values: _quantile(values, share))


def _combine(series: Iterable[Series], combine: Callable[[Sequence[float]], float]) -> Series:
    all_series = list(series)
    if not all_series:
        return NO_SERIES
    first = all_series[0]
    values = {}
    for name in first.values:
        columns = zip(*(one.values[name] for one in all_series), strict=True)
        present = ([value for value in column if not math.isnan(value)] for column in columns)
        values[name] = [combine(column) if column else math.nan for column in present]
    return Series(first.times, values)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
