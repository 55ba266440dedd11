"""The demand of one class of agents: what it sent, divided by the fraction that its agents obeyed.

The requests of an agent in the log are divided by its own fraction. Those of agents that are not in it are divided by
the mean, as far as they follow that: agents may fetch with one identity and send with another. As far as they do not
follow it, and if the class fetches nothing at all, they are uncontrolled: no fraction changes them. So are requests of
agents that are disallowed, and all that arrive when nothing but `disallow` was served for longer than a max-age.

Decision 0090 has what other values of the constants do in the outer cases of the lab.
"""

import enum
import math
from collections import deque
from collections.abc import Hashable
from typing import Final, NamedTuple

from headgate.advice.compliance import ComplianceMeter, Divided, PooledCompliance
from headgate.advice.demand import DemandWindow, Period
from headgate.advice.fetch_log import FORGOTTEN_AFTER, FetchLog, InForce, Requests

_MIN_VISIBLE: Final = 0.1
"""The part of the agents that must not be disallowed, for arrivals to show the demand: those that are count like the
others, so that a tenth is multiplied by ten, with its noise. Half and twice as much give the same figures."""
_MIN_KNOWN: Final = 0.5
"""The part of the controlled requests that agents in the log must have sent, for a trend to be known. It matters after
a start with wrong fractions: the load overshoots by 0.15, with 0.25 by 0.06 and with 0.75 by 0.26."""
_MIN_DISOBEYING: Final = 16
"""Requests that disobey from which on they tell of the compliance. Fewer have a standard error above a quarter, up to
which a measured compliance is known."""
_HALVES_IN: Final = 1.0
"""Max-ages in which a demand that cannot be measured is halved. Half and twice as many give the same figures."""


class Visibility(enum.Enum):
    """What the requests of a period show of the demand of a class."""

    MEASURED = "measured"
    """The demand; also that it is 0."""
    DISALLOWED = "disallowed"
    """Nothing: nearly all agents are disallowed. The estimate is made smaller, until the class is admitted again."""
    NO_FETCH = "no fetch"
    """That the class sends requests and fetches no advice: they are not controlled."""


class _Shown(NamedTuple):
    """The requests of a period, as they would have been without advice."""

    demand: float = 0.0
    """Those that the fraction controls."""
    uncontrolled: float = 0.0
    disobeying: float = 0.0
    proven: float = 0.0
    """Those of `disobeying` that tell of the compliance."""


class ClassDemand:
    """Counts the requests of a class, and estimates its demand at the end of each period.

    `start` is the fraction that the agents obey when it begins. `floor` is the smallest one that requests are divided
    by. Memory is bounded by `max_agents`.
    """

    def __init__(
        self, *, start: float, floor: float, samples: int, period: float, max_age: float, max_agents: int
    ) -> None:
        self.window = DemandWindow(samples, max_age)
        """The controlled requests."""
        self.uncontrolled = DemandWindow(samples, max_age)
        """Those of agents that are not known, and do not follow the fraction."""
        self.disobeying = DemandWindow(samples, max_age)
        """Those that were disallowed."""
        self._proven = DemandWindow(samples, max_age)
        """Those that certainly disobey; its demand has also what agents that obey have not sent."""
        self._measured = 0.0
        """The demand, in requests per second, when it was measured last."""
        self.in_force = start
        """What arrived in the last period, as a part of the demand; without arrivals, the mean over agents."""
        self.visibility = Visibility.MEASURED
        """What the last period has shown."""
        self._start = start
        self._floor = floor
        self._max_age = max_age
        periods = math.ceil(max_age / period)
        self._log = FetchLog(max_agents, fraction=start, floor=floor, patience=periods)
        self._meter = ComplianceMeter()
        self._pool = PooledCompliance(periods + 1)
        self._published: deque[tuple[float, float]] = deque(maxlen=periods)
        """The begin of each period of the latest max-age, and the fraction published in it."""
        self._replaced: float | None = None
        """Mean fraction, at the end of the last period, of agents that a full log has replaced."""
        self._are_agents_known = False
        self._permitted_until = -math.inf
        """When the last advice that permits requests becomes stale."""
        self._fetched_at: float | None = None
        self._arrivals = 0.0  # all requests of the period
        self._anonymous = 0.0  # those counted without an agent
        self._unknown = 0.0  # those of agents that are not in the log

    @property
    def agents(self) -> int:
        """The number of agents with fresh advice."""
        return len(self._log)

    @property
    def compliance(self) -> float | None:
        """The part of the demand that obeys; None as long as the fractions have not changed enough to tell.

        While agents are disallowed their fraction does not change, but who sends requests does not obey. So it is at
        most the part that has stayed away. Requests of agents that are not known can be those of a single client, so
        they are compared with the demand that was measured last.
        """
        measured = self._meter.compliance
        if measured is not None and self.demand:
            measured *= 1.0 - self.uncontrolled.demand / self.demand
        if self._proven.requests < _MIN_DISOBEYING:
            return measured
        stayed_away = 1.0 - self._proven.arrivals / self._proven.demand
        return stayed_away if measured is None else min(measured, stayed_away)

    @property
    def ignoring(self) -> float:
        """Requests per second that no fraction changes; they take from what is available."""
        return self.uncontrolled.demand + self.disobeying.arrivals

    @property
    def demand(self) -> float:
        """Requests per second that would arrive with a fraction of 1."""
        return self.window.demand + self.ignoring

    @property
    def arrivals(self) -> float:
        """Requests per second that arrived."""
        return self.window.arrivals + self.uncontrolled.arrivals + self.disobeying.arrivals

    def expected(self, seconds: float) -> float:
        """Return the controlled demand in so many seconds.

        The mean over agents is too inexact for a forecast: agents of different sizes that fetch look like a trend.
        """
        return self.window.forecast(seconds) if self._are_agents_known else self.window.demand

    def fetched(self, agent: Hashable, fraction: float, *, now: float, max_age: float) -> None:
        """Record that an agent was served a fraction, 0 for `disallow`, which it obeys for `max_age` seconds."""
        self._fetched_at = now
        if fraction > 0.0:
            self._permitted_until = max(self._permitted_until, now + max_age)
        self._log.add(agent, fraction, now=now, max_age=max_age)

    def arrived(self, agent: Hashable, count: float) -> None:
        """Count requests of an agent; None if it is not known."""
        self._arrivals += count
        if agent is None:
            self._anonymous += count
            return
        history = self._log.history(agent)
        if history is None:
            self._unknown += count
        else:
            history.requests += count

    def skip(self, *, now: float) -> None:
        """End a period that shows nothing."""
        self.in_force = self._log.read(now=now).mean
        self._begin(valid=False)

    def renew(self, *, now: float) -> None:
        """Take the class for one that fetches, and for one with advice that permits requests, as long as it may be."""
        self._fetched_at = now
        self._permitted_until = now + self._max_age

    def measure(self, elapsed: float, published: float, *, now: float, since_start: float) -> None:
        """End a period: add its requests and its demand to the windows.

        `published` is the fraction published in it. `since_start` is the part of the first max-age that has passed.
        Until it is over, agents obey what they fetched before the start; on average, as many have fetched again as of
        that max-age has passed.
        """
        self._published.append((now - elapsed, published))
        logged = self._log.requests()
        self._meter.measure(self._log.histories(), demand=logged.demand)
        in_force = self._log.read(now=now)
        visible = 1.0 - in_force.disallowed
        self.visibility = Visibility.MEASURED if visible >= _MIN_VISIBLE else Visibility.DISALLOWED
        fetched_before = max(0.0, 1.0 - since_start)
        unknown = self._divide_unknown(in_force, elapsed, fetched_before=fetched_before)
        mean = self._start * fetched_before + in_force.mean * (1.0 - fetched_before)
        # Agents that are disallowed, and so send nothing, are assumed to be like the others.
        demand = logged.demand / max(visible, _MIN_VISIBLE) + self._anonymous / max(mean, self._floor) + unknown.obeying
        shown = _Shown(demand, unknown.ignoring, logged.disobeying, logged.proven)
        if self.agents and self._permitted_until <= now - elapsed:
            proven = logged.proven + self._arrivals - logged.arrivals
            shown = _Shown(disobeying=self._arrivals, proven=proven)
        if self._fetched_at is None or now - self._fetched_at > FORGOTTEN_AFTER * self._max_age:
            shown = _Shown(uncontrolled=self._arrivals)
            is_idle = not (self._arrivals or self.uncontrolled.demand)
            self.visibility = Visibility.MEASURED if is_idle else Visibility.NO_FETCH
        self._add(shown, logged, elapsed, mean=in_force.mean)
        self._begin(valid=True)

    def _divide_unknown(self, in_force: InForce, elapsed: float, *, fetched_before: float) -> Divided:
        """Return what agents that are not in the log would have sent without advice, by whether they follow it."""
        mean = self._mean_of_unknown(in_force)
        if fetched_before:
            mean = self._start
        else:
            self._pool.add(mean, self._unknown / elapsed, elapsed)
        return self._pool.divide(self._unknown, max(mean, self._floor))

    def _add(self, shown: _Shown, logged: Requests, elapsed: float, *, mean: float) -> None:
        """Add what a period has shown to the windows; the demand of a class that is disallowed is guessed."""
        demand, uncontrolled, disobeying, proven = shown
        controlled = max(0.0, self._arrivals - uncontrolled - disobeying)
        self._are_agents_known = logged.arrivals - logged.disobeying > _MIN_KNOWN * controlled
        self.uncontrolled.add(Period(elapsed, uncontrolled, uncontrolled))
        self.disobeying.add(Period(elapsed, disobeying, disobeying))
        self.in_force, stayed_away = mean, demand
        if self.visibility is Visibility.DISALLOWED:
            proven, stayed_away = self._prove(logged, proven, elapsed)
            self.window.scale(0.5 ** (elapsed / (_HALVES_IN * self._max_age)))
        else:
            without_advice = demand + uncontrolled + disobeying
            if without_advice > 0.0:
                self.in_force = self._arrivals / without_advice
            self.window.add(Period(elapsed, controlled, demand))
            self._measured = self.demand
        self._proven.add(Period(elapsed, proven, proven + stayed_away))

    def _prove(self, logged: Requests, proven: float, elapsed: float) -> tuple[float, float]:
        """Return the requests of a class that is disallowed that tell of the compliance, and those that stayed away."""
        if logged.senders:
            # The agents that are silent are taken to be like those that send.
            return logged.proven, logged.proven * logged.silent / logged.senders
        return (proven, max(0.0, self._measured * elapsed - proven)) if self._measured else (0.0, 0.0)

    def _mean_of_unknown(self, in_force: InForce) -> float:
        """Return the fraction of agents that are not in the log.

        If it is full, they fetched before the earliest agent in it, and obey what was published then: the mean of that
        at the begin and at the end of the period.
        """
        full_since = self._log.full_since
        earlier = [] if full_since is None else [fraction for begin, fraction in self._published if begin < full_since]
        before, self._replaced = self._replaced, sum(earlier) / len(earlier) if earlier else None
        if self._replaced is None:
            return in_force.mean
        return self._replaced if before is None else (before + self._replaced) / 2

    def _begin(self, *, valid: bool) -> None:
        """Begin a new count of arrivals; that of a period that is not valid is compared with none."""
        self._log.begin(valid=valid)
        self._arrivals = self._anonymous = self._unknown = 0.0
