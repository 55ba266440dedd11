"""The history law: the fraction of traffic advice, computed from what arrives and from what was published.

A change of advice acts slowly: each agent fetches at its own time, and obeys what it got for one max-age. So what
arrives, before anything is rejected, is the demand times the mean of what was published in the last max-age:

    demand = arrivals / mean of the published fractions
    fraction = (0.97 * capacity - people) / demand

The demand does not depend on what is published now, so that the first correction is about the right one. The law knows
no agents. It expects many that fetch at different times; with a few, or with agents in step, the load rises and falls.
Agents that do not obey make the demand look larger than it is, and the fraction still settles where what arrives fits.

This file reads no clock. The caller counts arrivals, and calls `update` regularly.
"""

import enum
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headgate.advice_control.publisher import Entry
from headgate.errors import fail_if

TARGET: Final = 0.97
"""The part of the capacity to fill."""
MIN_FLOOR: Final = 0.0001
"""The smallest floor. Of ten requests per second it permits one in 17 minutes; less would show no demand."""
_PERIODS: Final = 10
"""Decisions in a max-age."""
_MAX_PERIODS: Final = 2.0
"""A longer time between two updates, in periods, is one in which the process was suspended."""
_EARLY: Final = 0.999
"""The part of a period after which it is complete: a timer may be early by a rounding error."""
_DIGITS: Final = 6
"""Decimal places of a published fraction."""
_SAMPLES: Final = 400
"""Requests from which a demand is computed, if one max-age has as many; 400 have a standard error of 5 %."""
_HYSTERESIS: Final = 0.05
"""The relative difference up to which a published fraction stays; more with fewer than `_SAMPLES` requests."""


class Reason(enum.StrEnum):
    """Why the fraction of a class is what it is."""

    START = "start"
    """The first period has not ended."""
    SETTLED = "settled"
    """The demand agrees with the published fraction."""
    CHANGED = "changed"
    """The fraction was changed."""
    RISE_LIMITED = "rise-limited"
    """The fraction was raised, by less than the demand permits."""
    DISALLOWED = "disallowed"
    """Less than the floor is available."""
    DEMAND_UNKNOWN = "demand-unknown"
    """The class was disallowed for a max-age: its demand cannot be seen, and its estimate is halved every max-age."""
    FROZEN = "frozen"
    """The period shows no demand: the origin was down, its capacity is unknown, or the process was suspended."""


class LawSettings(msgspec.Struct, frozen=True):
    """Parameters of a `HistoryLaw`; raises `ConfigurationError` for an invalid one."""

    classes: tuple[str, ...] = ("*",)
    """The names of the classes of agents whose fraction is computed: brand names, `prefetch-proxy`, or `*`."""
    max_age: float = 600.0
    """Seconds that advice stays fresh at the agents; at least 600 with agents that apply the suggested minimum."""
    floor: float = 0.001
    """The smallest fraction that is published; below it, `disallow` is."""
    monitor: bool = False
    """Whether fractions are only computed, and all traffic is asked for."""

    def __post_init__(self) -> None:
        fail_if(not MIN_FLOOR <= self.floor <= 1, f"advice: floor must be from {MIN_FLOOR} to 1, got {self.floor!r}")
        fail_if(
            not (math.isfinite(self.max_age) and self.max_age > 0),
            f"advice: max_age must be a positive number, got {self.max_age!r}",
        )
        fail_if(
            not self.classes or len(set(self.classes)) < len(self.classes),
            f"advice: expected at least one class, each once, got {self.classes!r:.80}",
        )

    @property
    def period(self) -> float:
        """The seconds between two decisions."""
        return self.max_age / _PERIODS


class Explanation(NamedTuple):
    """What is computed for a class, and why. Rates are in requests per second."""

    agent_class: str
    fraction: float
    """The computed fraction; 0 if the class is disallowed."""
    demand: float
    """What would arrive without advice, as estimated."""
    arrivals: float
    """What arrived in the window of the estimate, before anything was rejected."""
    in_force: float
    """The mean of what was published in the last max-age."""
    reason: Reason


class _Period(NamedTuple):
    """What one period has shown of a class."""

    duration: float
    arrivals: float
    in_force: float


class _Window:
    """The latest periods of a class: as many as have `_SAMPLES` requests, at most a max-age."""

    def __init__(self) -> None:
        self.demand = 0.0
        """Requests per second that would arrive with a fraction of 1."""
        self.arrivals = 0.0
        """Requests per second that arrive."""
        self.noise = 1.0
        """How much larger the standard error of the demand is than with `_SAMPLES` requests, at least 1."""
        self._periods: deque[_Period] = deque(maxlen=_PERIODS)

    def add(self, period: _Period) -> bool:
        """Add a period; returns whether the demand can be seen."""
        self._periods.append(period)
        while sum(one.arrivals for one in self._periods) - self._periods[0].arrivals >= _SAMPLES:
            self._periods.popleft()
        requests = sum(one.arrivals for one in self._periods)
        self.arrivals = requests / sum(one.duration for one in self._periods)
        self.noise = math.sqrt(_SAMPLES / requests) if 0.0 < requests < _SAMPLES else 1.0
        possible = sum(one.duration * one.in_force for one in self._periods)
        if possible <= 0.0 or period.in_force <= 0.0:
            self._periods.clear()
            return False
        self.demand = requests / possible
        return True


class _Class:
    """One class: its demand, and what is published for it."""

    def __init__(self, settings: LawSettings, fraction: float) -> None:
        self.fraction = fraction
        self.count = 0.0
        """Requests in the present period."""
        self.window = _Window()
        self.in_force = 1.0 if settings.monitor else fraction
        self.reason = Reason.START
        self._monitor = settings.monitor
        self._floor = settings.floor
        self._published = deque([self.in_force] * (_PERIODS + 1), maxlen=_PERIODS + 1)

    def end_period(self) -> None:
        """Take the mean of what the agents obeyed in the period."""
        self._published.append(1.0 if self._monitor else self.fraction)
        # In the middle of the period, the oldest advice in use was published in the middle of the first one here.
        ends = (self._published[0] + self._published[-1]) / 2.0
        self.in_force = max(0.0, sum(self._published) - ends) / _PERIODS

    def measure(self, elapsed: float, period: float) -> float:
        """Estimate the demand; returns the requests per second that do not depend on what is published."""
        if self.window.add(_Period(elapsed, self.count, self.in_force)):
            self.reason = Reason.SETTLED
            return 0.0
        self.window.demand *= 0.5 ** (elapsed / (_PERIODS * period))
        self.reason = Reason.DEMAND_UNKNOWN
        return self.count / elapsed

    def change(self, wanted: float, growth: float) -> None:
        """Move the fraction towards `wanted`: down at once, up by a factor of `growth` at most."""
        hysteresis = _HYSTERESIS * self.window.noise * self.fraction
        if wanted < self._floor and (self.fraction == 0.0 or wanted < self.fraction - hysteresis):
            self.fraction = 0.0
            if self.reason is not Reason.DEMAND_UNKNOWN:
                self.reason = Reason.DISALLOWED
        elif wanted != self.fraction and (wanted >= 1.0 or abs(wanted - self.fraction) > hysteresis):
            most = max(self.fraction * growth, self._floor)
            self.fraction = min(wanted, most)
            self.reason = Reason.CHANGED if wanted <= most else Reason.RISE_LIMITED


class HistoryLaw:
    """Computes the entries of the document for the classes of its settings.

    `start` has entries that agents obey already, such as those of an earlier law. Memory is bounded by the settings.
    """

    def __init__(self, settings: LawSettings, *, start: Iterable[Entry] = ()) -> None:
        self._settings = settings
        begun = {entry.user_agent: entry.wanted for entry in start}
        self._classes = {name: _Class(settings, begun.get(name, 1.0)) for name in settings.classes}
        self._people = _Window()
        self._people_count = 0.0
        self._updated: float | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The computed entries, in the order of the classes."""
        return tuple(Entry.of(name, round(each.fraction, _DIGITS)) for name, each in self._classes.items())

    def arrived(self, agent_class: str | None, count: float = 1.0) -> None:
        """Count requests, before any is rejected; a class that the settings do not contain counts as people."""
        found = self._classes.get(agent_class) if agent_class is not None else None
        if found is None:
            self._people_count += count
        else:
            found.count += count

    def is_due(self, *, now: float) -> bool:
        """Return whether `update` would end a period."""
        return self._updated is None or now - self._updated >= _EARLY * self._settings.period

    def update(self, *, now: float, capacity: float, frozen: bool = False) -> tuple[Entry, ...]:
        """Decide, if a period has ended, and return the computed entries.

        `capacity` is in requests per second. `frozen` discards a period that shows no demand: the origin is down, for
        example, and agents back off.
        """
        if not self.is_due(now=now):
            return self.entries
        elapsed = 0.0 if self._updated is None else now - self._updated
        if self._updated is not None:
            for each in self._classes.values():
                each.end_period()
        if frozen or not 0.0 < elapsed <= _MAX_PERIODS * self._settings.period:
            for each in self._classes.values():
                each.reason = Reason.START if self._updated is None else Reason.FROZEN
        else:
            self._decide(capacity, elapsed)
        self._updated, self._people_count = now, 0.0
        for each in self._classes.values():
            each.count = 0.0
        return self.entries

    def explain(self) -> tuple[Explanation, ...]:
        """Return what is computed for each class, and why."""
        return tuple(
            Explanation(name, each.fraction, each.window.demand, each.window.arrivals, each.in_force, each.reason)
            for name, each in self._classes.items()
        )

    def _decide(self, capacity: float, elapsed: float) -> None:
        """Share what people leave among the classes."""
        self._people.add(_Period(elapsed, self._people_count, 1.0))
        uncontrolled = sum(each.measure(elapsed, self._settings.period) for each in self._classes.values())
        available = TARGET * capacity - self._people.arrivals - uncontrolled
        demands = {name: each.window.demand for name, each in self._classes.items()}
        shares = share(available, demands)
        growth = self._settings.floor ** (-elapsed / self._settings.max_age)
        for name, each in self._classes.items():
            # While people need everything, an idle class is not invited either.
            satisfied = shares[name] >= demands[name] and available > 0.0
            each.change(1.0 if satisfied else shares[name] / demands[name] if demands[name] else 0.0, growth)


def share(available: float, demands: Mapping[str, float]) -> dict[str, float]:
    """Divide what is available by max-min fairness.

    A class gets what it demands unless that is more than an equal part of what the others leave. So a class gains
    nothing by demanding more, as it would if all had the same fraction.
    """
    shares, left, others = {}, max(0.0, available), len(demands)
    for name in sorted(demands, key=lambda name: (demands[name], name)):
        shares[name] = min(demands[name], left / others)
        left = max(0.0, left - shares[name])
        others -= 1
    return shares
