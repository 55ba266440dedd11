"""What runs return, and what a scenario makes of them: metrics, series over time, and judged expectations.

A metric is a number, or a list of numbers of a fixed length (one for each trial). All are finite.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

Metric = float | list[float]
"""A number, or a list of numbers."""
Metrics = dict[str, Metric]
"""Metrics by name, in the order in which reports print them."""


class Series(Struct, frozen=True):
    """Signals over time, all sampled at the same times; empty unless recording was asked for."""

    times: list[float] = []
    """Seconds since the start of the world, ascending."""
    values: dict[str, list[float]] = {}
    """One list for each signal, as long as `times`; NaN where the signal has no value."""


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


class Judgement(Struct, frozen=True):
    """Whether one `[[expect]]` holds for one policy: the value of the seed that is worst."""

    policy: str
    signal: str
    statistic: str
    value: float
    """Infinite for a signal that never settles; NaN if there is nothing to measure, which is never within."""
    at_least: float
    """Minus infinity if the range is open below."""
    at_most: float
    """Infinity if the range is open above."""
    seed: int | None
    """The seed of `value`; None for the mean over the seeds."""
    within: bool


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
    judgements: tuple[Judgement, ...] = ()
    """One for each policy and expectation."""


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
