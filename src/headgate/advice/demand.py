"""The demand of a class of agents, from what arrived in the latest periods, and how classes share what is available.

Noise falls with the number of requests, and delay rises with the length of the window. So a window is as short as a
number of requests permits: a rise of the demand is known after one period, and a small site gets a longer mean.

Decision 0090 has what other values of the constants do in the outer cases of the lab.
"""

import math
from collections import deque
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Final, NamedTuple

_TREND_PERIODS: Final = 2
"""The latest changes from period to period that have to agree on a trend. One would continue each step; with three, a
ramp of two hours overshoots by 0.08 instead of 0.04."""
_MAX_TREND: Final = 2.0
"""A demand that would grow by more than this factor has made a step; one that falls, falls at most by this factor.
With 1.5, a ramp of two hours overshoots by 0.22 instead of 0.04; with 3, lost fetches settle after 740 s, not 620."""
_MIN_ERRORS: Final = 2.0
"""The smallest change that can be part of a trend, in standard errors of the demand. With 1, noise costs goodput (0.93
instead of 0.96 where the demand is overestimated); with 3, a ramp of two hours overshoots by 0.07 instead of 0.04."""
_REMEMBERED: Final = 3.0
"""Spans of a window for which the highest and the lowest demand is remembered. With half, agents
that ignore advice make the load overshoot by 0.08 instead of 0.06; with twice, forgotten fetches by 0.10, not 0.08."""


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

    def __init__(self, samples: int, span: float) -> None:
        self._periods: list[Period] = []
        self._estimates: deque[float] = deque()
        """The demand at the end of each of the latest periods."""
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
        self._estimates.append(self.demand)
        while len(self._estimates) > max(_TREND_PERIODS + 1.0, _REMEMBERED * self._span / period.duration):
            self._estimates.popleft()

    def scale(self, factor: float) -> None:
        """Multiply the demand by a factor: an estimate that cannot be measured again becomes less certain."""
        self._periods = [period._replace(demand=period.demand * factor) for period in self._periods]
        self._estimates.clear()

    def forecast(self, seconds: float) -> float:
        """Return the demand in so many seconds, if it goes on to rise or to fall as in the latest periods.

        The trend is the smaller one of the two latest changes. There is none if they differ in sign, or if it is within
        the noise: twice the standard error of the demand, or the usual difference between two changes. So one step is
        not continued. A demand that was lower, or higher, a short time ago is expected to go back to there at most.
        """
        demand, trend = self.demand, self._trend
        if not trend:
            return demand
        periods = (seconds + self._duration / 2.0) / self._periods[-1].duration
        earlier = list(islice(self._estimates, len(self._estimates) - _TREND_PERIODS - 1))
        highest, lowest = max(earlier, default=demand), min(earlier, default=demand)
        most = highest if highest > demand else math.inf
        least = lowest if lowest < demand else 0.0
        expected = demand + trend * periods
        if expected > _MAX_TREND * demand:
            return demand
        return min(max(expected, least, demand / _MAX_TREND), most)

    @property
    def requests(self) -> float:
        """Requests that arrived."""
        return sum(period.arrivals for period in self._periods)

    @property
    def noise(self) -> float:
        """How much larger the standard error of the demand is than with `samples` requests, at least 1."""
        count = self.requests
        return math.sqrt(self._samples / count) if 0.0 < count < self._samples else 1.0

    @property
    def arrivals(self) -> float:
        """Requests per second that arrived."""
        return self._mean(self.requests)

    @property
    def demand(self) -> float:
        """Requests per second that would arrive with a fraction of 1."""
        return self._mean(sum(period.demand for period in self._periods))

    @property
    def _duration(self) -> float:
        return sum(period.duration for period in self._periods)

    @property
    def _trend(self) -> float:
        """The change of the demand in each period, 0 if it is not known."""
        changes = [after - before for before, after in pairwise(self._estimates)]
        latest, count = changes[-_TREND_PERIODS:], self.requests
        if len(latest) < _TREND_PERIODS or not count:
            return 0.0
        trend = min(latest, key=abs)
        differences = sorted(abs(after - before) for before, after in pairwise(changes))
        noise = max(_MIN_ERRORS * self.demand / math.sqrt(count), differences[(len(differences) - 1) // 2])
        agree = all(change * trend > 0.0 for change in latest)
        return trend if agree and abs(trend) > noise else 0.0

    def _mean(self, total: float) -> float:
        return total / self._duration if self._periods else 0.0


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
