"""The demand of a class of agents, from what arrived in the latest periods, and how classes share what is available.

Noise falls with the number of requests, and delay rises with the length of the window. So a window is as short as a
number of requests permits: a rise of the demand is known after one period, and a small site gets a longer mean.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple


class Period(NamedTuple):
    """What one period has shown of a class."""

    duration: float
    """Seconds."""
    arrivals: float
    """Requests that arrived, before any was rejected."""
    demand: float
    """Requests that would have arrived with a fraction of 1."""


class DemandWindow:
    """The latest periods: as many as have `samples` requests, but no more than fit `span` seconds."""

    __slots__ = ("_periods", "_samples", "_span")

    def __init__(self, samples: int, span: float) -> None:
        self._periods: list[Period] = []
        self._samples = samples
        self._span = span

    def add(self, period: Period) -> None:
        """Add a period, and drop the earliest ones that are not needed."""
        self._periods.append(period)
        duration = arrivals = 0.0
        for needed, latest in enumerate(reversed(self._periods)):
            if arrivals >= self._samples or (needed and duration + latest.duration > self._span):
                del self._periods[:-needed]
                break
            duration += latest.duration
            arrivals += latest.arrivals

    def scale(self, factor: float) -> None:
        """Multiply the demand by a factor: an estimate that cannot be measured again becomes less certain."""
        self._periods = [period._replace(demand=period.demand * factor) for period in self._periods]

    @property
    def noise(self) -> float:
        """How much larger the standard error of the demand is than with `samples` requests, at least 1."""
        count = sum(period.arrivals for period in self._periods)
        return math.sqrt(self._samples / count) if 0.0 < count < self._samples else 1.0

    @property
    def arrivals(self) -> float:
        """Requests per second that arrived."""
        return self._mean(sum(period.arrivals for period in self._periods))

    @property
    def demand(self) -> float:
        """Requests per second that would arrive with a fraction of 1."""
        return self._mean(sum(period.demand for period in self._periods))

    def _mean(self, total: float) -> float:
        return total / sum(period.duration for period in self._periods) if self._periods else 0.0


def share(available: float, demands: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Divide what is available by weighted max-min fairness.

    A class gets what it demands unless that is more than its weight's part of what the others leave. So a class gains
    nothing by demanding more, as it would if all had the same fraction.
    """
    shares = {}
    left, weight_left = max(0.0, available), sum(weights[name] for name in demands)
    for name in sorted(demands, key=lambda name: (demands[name] / weights[name], name)):
        shares[name] = min(demands[name], left * weights[name] / weight_left)
        left = max(0.0, left - shares[name])
        weight_left -= weights[name]
    return shares
