"""The controller: the fraction of traffic advice, computed from the demand (the demand-model law).

A change of advice acts slowly: each agent fetches at its own time, and obeys what it got until that is stale. So the
load is a moving average, over one max-age, of what was published. A law that compares only load and target corrects
again and again before its first correction has arrived, and oscillates. This law computes the demand instead: what
arrives, before anything is rejected, divided by the fraction in force, which the origin knows because it has served it
(`FetchLog`). The demand does not depend on what was published, so the first correction is the right one.

    fraction = (target * capacity - people - agents that are not controlled - other classes) / demand

What is published now is obeyed for one max-age. So the demand is that which is expected in the middle of this time,
where it rises or falls steadily (`DemandWindow.forecast`).

This file reads no clock and draws no numbers. The shell reports fetches and arrivals, and calls `update` regularly.
"""

import enum
import math
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from headgate.advice.class_demand import ClassDemand, Visibility
from headgate.advice.compliance import OBEYS_FROM
from headgate.advice.demand import DemandWindow, Period, share
from headgate.advice_control import Entry
from headgate.errors import ConfigurationError

_MAX_PERIODS: Final = 2.0
"""A longer time between two updates, in periods, is a clock that was set or a process that was suspended."""
_EARLY: Final = 0.999
"""The part of a period after which it is complete: a timer may be early by a rounding error."""
_DIGITS: Final = 6
"""Decimal places of a published fraction."""
_SAMPLES: Final = 400
"""Requests from which a demand is computed, if one max-age has as many; 400 have a standard error of 5 %."""
_HYSTERESIS: Final = 0.05
"""The relative difference up to which a published fraction stays; more with fewer than `_SAMPLES` requests."""
MIN_FLOOR: Final = 0.0001
"""The smallest floor. Of ten requests per second it permits one in 17 minutes; less would show no demand."""


class Reason(enum.StrEnum):
    """Why the fraction of a class is what it is."""

    START = "start"
    """The first period has not ended."""
    SETTLED = "settled"
    """The demand agrees with the published fraction."""
    CHANGED = "changed"
    """The fraction was changed."""
    RISE_LIMITED = "rise limited"
    """The fraction was raised, by less than the demand allows."""
    DISALLOWED = "disallowed"
    """Less than the floor is available."""
    DEMAND_UNKNOWN = "demand unknown"
    """Nearly all agents are disallowed, so that their demand cannot be seen; the estimate is halved every max-age."""
    NO_FETCH = "no fetch"
    """The class sends requests but has fetched no advice for two max-ages. The fraction stays, and the requests count
    as those of people."""
    DISOBEYS = "does not obey"
    """The class has a compliance below 0.5, so that its requests have to be limited otherwise. Its fraction follows the
    demand as if it obeyed."""
    FROZEN = "frozen"
    """The caller said that the period shows nothing."""
    INVALID = "period invalid"
    """The clock was set, or the process suspended."""


_MEASURED: Final = {
    Visibility.MEASURED: Reason.SETTLED,
    Visibility.DISALLOWED: Reason.DEMAND_UNKNOWN,
    Visibility.NO_FETCH: Reason.NO_FETCH,
}
"""The reason of a fraction that is not changed."""
_UNDECIDED: Final = frozenset({Reason.START, Reason.NO_FETCH, Reason.FROZEN, Reason.INVALID})
"""The reasons why nothing was decided."""


class AgentClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of agents with one entry in the document."""

    name: str
    """A brand name, `prefetch-proxy`, or `*`."""
    weight: float = 1.0
    """Its part of what people leave, relative to the other classes."""

    def __post_init__(self) -> None:
        Entry(self.name)
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigurationError(f"advice: weight of {self.name!r} must be a positive number, got {self.weight!r}")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of a `Controller`; raises `ConfigurationError` for an invalid one."""

    capacity: float
    """Requests per second that the origin can serve."""
    classes: tuple[AgentClass, ...] = (AgentClass("*"),)
    """The classes whose fraction is computed."""
    target: float = 0.97
    """The part of the capacity to fill, above 0 and at most 1."""
    period: float = 60.0
    """Seconds between two decisions."""
    max_age: float = 600.0
    """Seconds that advice stays fresh at the agents; at least 600 with agents that apply the suggested minimum."""
    floor: float = 0.001
    """The smallest fraction that is published; below it, `disallow` is."""
    max_agents: int = 10_000
    """Maximum agents remembered per class."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.capacity) and self.capacity >= 0):
            raise ConfigurationError(f"advice: capacity must be a non-negative number, got {self.capacity!r}")
        if not 0 < self.target <= 1:
            raise ConfigurationError(f"advice: target must be above 0 and at most 1, got {self.target!r}")
        if not MIN_FLOOR <= self.floor <= 1:
            raise ConfigurationError(f"advice: floor must be from {MIN_FLOOR} to 1, got {self.floor!r}")
        for name in ("period", "max_age", "max_agents"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigurationError(f"advice: {name} must be a positive number, got {getattr(self, name)!r}")
        if self.period > self.max_age:
            raise ConfigurationError(f"advice: period must be at most max_age, got {self.period!r}")
        names = [agent_class.name for agent_class in self.classes]
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(f"advice: classes must have at least one name, each once, got {names!r:.80}")


DEFAULTS: Final = Settings(capacity=0.0)
"""The values of settings that are not given."""


class Explanation(NamedTuple):
    """What is published for a class, and why."""

    agent_class: str
    fraction: float
    """The published fraction; 0 if the class is disallowed."""
    demand: float
    """Requests per second that would arrive without advice, as estimated."""
    arrivals: float
    """Requests per second that arrived in the window of the estimate, before any was rejected."""
    in_force: float
    """The fraction in force in the last period: what arrived of the demand; without arrivals, the mean over agents."""
    agents: int
    """Agents with fresh advice."""
    reason: Reason
    compliance: float | None = None
    """The part of the demand that obeys; None as long as the fractions in force have not changed enough to tell, or no
    agents of the requests are known."""


class _Class:
    """One class: its demand, and what is published for it."""

    def __init__(self, settings: Settings, fraction: float) -> None:
        self.demand = ClassDemand(
            start=fraction,
            floor=settings.floor,
            samples=_SAMPLES,
            period=settings.period,
            max_age=settings.max_age,
            max_agents=settings.max_agents,
        )
        self.fraction = fraction
        self.explained = Reason.START

    @property
    def reason(self) -> Reason:
        """Why the fraction is what it is."""
        compliance = self.demand.compliance
        disobeys = compliance is not None and compliance < OBEYS_FROM and self.explained not in _UNDECIDED
        return Reason.DISOBEYS if disobeys else self.explained


class Controller:
    """Computes the entries of the document for the classes of its settings.

    `start` has the entries of an earlier controller with the same classes: what agents obey after a restart.

    `fetched`, `arrived` and `update` may be called in any order. Memory is bounded by `max_agents` per class.
    """

    def __init__(self, settings: Settings, *, start: Iterable[Entry] = ()) -> None:
        self._settings = settings
        begun = {entry.user_agent: entry.wanted for entry in start}
        self._classes = {each.name: _Class(settings, begun.get(each.name, 1.0)) for each in settings.classes}
        self._weights = {each.name: each.weight for each in settings.classes}
        self._others = DemandWindow(_SAMPLES, settings.max_age)
        self._others_count = 0.0
        self._started = 0.0
        self.updated_at: float | None = None
        """When the last period ended; None before the first one begins."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries to publish, in the order of the classes."""
        return tuple(_entry(name, each.fraction) for name, each in self._classes.items())

    def fetched(
        self,
        agent_class: str,
        agent: Hashable,
        *,
        now: float,
        max_age: float | None = None,
        served: float | None = None,
    ) -> Entry:
        """Record that an agent fetches the advice at `now`; return the entry to serve.

        `max_age` is how long the agent obeys it, if not that of the settings. `served` is the fraction that it was
        served, 0 for `disallow`, if not that of the returned entry. Raises `KeyError` for a class that the settings do
        not contain.
        """
        found = self._classes[agent_class]
        entry = _entry(agent_class, found.fraction)
        found.demand.fetched(
            agent,
            entry.wanted if served is None else served,
            now=now,
            max_age=self._settings.max_age if max_age is None else max_age,
        )
        return entry

    def arrived(self, agent_class: str | None, agent: Hashable = None, *, count: float = 1.0) -> None:
        """Count requests, before any is rejected; a class that the settings do not contain counts as people.

        Requests of an agent in the log are divided by its own fraction, so agents of any size are counted exactly;
        those without one by the mean over agents, which is exact only for agents of one size. So are those of another
        agent, as far as they follow it.
        """
        found = self._classes.get(agent_class) if agent_class is not None else None
        if found is None:
            self._others_count += count
        else:
            found.demand.arrived(agent, count)

    def is_due(self, *, now: float) -> bool:
        """Return whether `update` would end a period: it is over, or the clock was set back."""
        return self.updated_at is None or not 0.0 <= now - self.updated_at < _EARLY * self._settings.period

    def update(
        self,
        *,
        now: float,
        capacity: float | None = None,
        frozen: bool = False,
        published: Mapping[str, float] = MappingProxyType({}),
    ) -> tuple[Entry, ...]:
        """Decide, if a period has ended, and return the entries to publish.

        `capacity` replaces that of the settings for this decision. `frozen` discards the period, which shows no demand:
        the origin is down, for example, and agents back off. `published` has the fractions that were published in the
        period, 0 for `disallow`, if they are not those of the entries.
        """
        if not self.is_due(now=now):
            return self.entries
        before, self.updated_at = self.updated_at, now
        elapsed = 0.0 if before is None else now - before
        valid = 0.0 <= elapsed <= _MAX_PERIODS * self._settings.period
        others, self._others_count = self._others_count, 0.0
        self._started = now if before is None else min(self._started, now)
        if before is None or frozen or not valid:
            self._skip(Reason.START if before is None else Reason.FROZEN if frozen else Reason.INVALID, now=now)
            return self.entries
        self._others.add(Period(elapsed, others, others))
        since_start = (now - elapsed / 2 - self._started) / self._settings.max_age
        for name, each in self._classes.items():
            each.demand.measure(elapsed, published.get(name, each.fraction), now=now, since_start=since_start)
            each.explained = _MEASURED[each.demand.visibility]
        self._decide(self._settings.capacity if capacity is None else capacity, elapsed)
        return self.entries

    def explain(self) -> tuple[Explanation, ...]:
        """Return what is published for each class, and why."""
        return tuple(
            Explanation(
                name,
                each.fraction,
                each.demand.demand,
                each.demand.arrivals,
                each.demand.in_force,
                each.demand.agents,
                each.reason,
                each.demand.compliance,
            )
            for name, each in self._classes.items()
        )

    def _skip(self, reason: Reason, *, now: float) -> None:
        """Begin a new period without a decision."""
        for each in self._classes.values():
            each.demand.skip(now=now)
            each.explained = reason
            if reason is not Reason.FROZEN:
                each.demand.renew(now=now)

    def _decide(self, capacity: float, elapsed: float) -> None:
        """Share what people leave among the classes that fetch advice, and change their fractions."""
        controlled = {name: each for name, each in self._classes.items() if each.explained is not Reason.NO_FETCH}
        ignoring = sum(each.demand.ignoring for each in self._classes.values())
        # Agents fetch this until the next decision, and obey it for one max-age: that is the middle of this time.
        ahead = (elapsed + self._settings.max_age) / 2.0
        demands = {name: each.demand.expected(ahead) for name, each in controlled.items()}
        available = self._settings.target * capacity - self._others.arrivals - ignoring
        shares = share(available, demands, self._weights)
        for name, each in controlled.items():
            demand = demands[name]
            # While people need everything, an idle class is not invited either.
            satisfied = shares[name] >= demand and available > 0.0
            self._change(each, 1.0 if satisfied else shares[name] / demand if demand else 0.0, elapsed)

    def _change(self, changed: _Class, wanted: float, elapsed: float) -> None:
        """Move the published fraction towards `wanted`: down at once, up from the floor to 1 in one max-age."""
        settings, published = self._settings, changed.fraction
        hysteresis = _HYSTERESIS * changed.demand.window.noise * published
        if wanted < settings.floor and (published == 0.0 or wanted < published - hysteresis):
            changed.fraction = 0.0
            if changed.explained is not Reason.DEMAND_UNKNOWN:
                changed.explained = Reason.DISALLOWED
        elif wanted == published or (wanted < 1.0 and abs(wanted - published) <= hysteresis):
            return
        else:
            growth = settings.floor ** (-elapsed / settings.max_age)
            limit = max(published * growth, settings.floor)
            changed.fraction = min(wanted, limit)
            changed.explained = Reason.CHANGED if wanted <= limit else Reason.RISE_LIMITED


def _entry(name: str, fraction: float) -> Entry:
    return Entry.of(name, round(fraction, _DIGITS))
