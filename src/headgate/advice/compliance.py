"""Compliance: the part of a class's demand that obeys the advice, from what agents send before and after a fetch.

    compliance = the change that was seen / the change that would be seen if all agents obeyed

Arrivals alone do not tell. While the demand rises and the published fraction falls, agents that obey and agents that do
not send the same: a constant number of requests. So agents are compared with each other. Those whose fraction has just
changed are compared with themselves two periods before, and the growth of those whose fraction has not changed is
divided out. Without such agents (all fetch at once, or there is only one) the demand is assumed to be constant.

Requests whose agent is not known are compared only with the mean of the fractions (`PooledCompliance`). Nothing is
measured of changes below a tenth. Old evidence is not forgotten by time, but replaced by later evidence: a class whose
fraction does not change keeps its compliance. What agents send while they are disallowed is for `ClassDemand` to judge.

This file reads no clock and draws no numbers. Decision 0090 has what other values of the constants do.
"""

import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from headgate.advice.agent_history import AgentHistory

OBEYS_FROM: Final = 0.5
"""Compliance below which a class, or an agent, does not obey."""

_MIN_CHANGE: Final = 0.1
"""The smallest change of a fraction that is evidence, relative to the larger fraction: twice the hysteresis of the
controller, below which a fraction does not change."""
_MAX_GROWTH: Final = 2.0
"""While the demand grows or shrinks by more than this factor within two periods, nothing is compared. No case of the
lab depends on it (1.4 and 4)."""
_BURSTS: Final = 0.1
"""Standard deviation of an agent's demand between two periods, as a part of it, beside that of random arrivals: an
assumption. With 0.05, a class that obeys nothing seems to obey by 0.17 instead of 0.07."""
_MAX_ERROR: Final = 0.25
"""The standard error up to which a compliance is known: two of them are from obeying to `OBEYS_FROM`. With 0.5, a class
that obeys nothing seems to obey by 0.17 instead of 0.07."""
_MEMORY: Final = 2.0
"""Evidence that is remembered: changes that, together, move the whole demand from nothing to all this many times.
No case of the lab depends on it (1 and 4)."""
_MIN_CHANGES: Final = 3
"""The fewest changes from which the compliance of agents that are not known follows: two always fit a line. No case of
the lab depends on it (2 and 5)."""
_MIN_SPREAD: Final = 0.15
"""The least root of the sum of the squares of these changes, relative to the largest fraction. With a tenth, noise is
taken for disobedience in one of eight runs; with a quarter, `ignored-without-fetches` settles a third later."""


class Evidence(NamedTuple):
    """Sums of what has changed between two periods.

    With `obeying` the part of the demand that obeys, requests are demand * (obeying * fraction + 1 - obeying). So their
    difference is demand * obeying * (high - low), and the demand is what arrived with the fraction `high`, and what
    obeyed it by staying away.
    """

    seen: float = 0.0
    """Differences in requests."""
    reference: float = 0.0
    """What they would be if all agents obeyed, and none had stayed away from the larger fraction."""
    stayed: float = 0.0
    """The requests that had, multiplied by the difference of the fractions."""
    variance: float = 0.0
    """The variance of the differences."""

    def plus(self, other: "Evidence") -> "Evidence":
        """Return both together."""
        return Evidence(*(mine + its for mine, its in zip(self, other, strict=True)))

    def bounded(self, demand: float) -> "Evidence":
        """Let later evidence replace earlier evidence; `demand` is the requests of a period without advice."""
        factor = _MEMORY * demand / self.expected if self.expected > 0.0 else 1.0
        return Evidence(*(factor * part for part in self)) if 0.0 < factor < 1.0 else self

    @property
    def expected(self) -> float:
        """The differences, if all agents obeyed."""
        # Noise can make the sum negative. Of single agents it may be: to leave it out there adds the noise of many.
        return self.reference + max(self.stayed, 0.0)

    @property
    def error(self) -> float:
        """The standard error of `compliance`; infinity without evidence."""
        return math.sqrt(self.variance) / self.expected if self.expected > 0.0 else math.inf

    @property
    def compliance(self) -> float | None:
        """The seen change divided by the expected one, from 0 to 1; None if the noise permits no answer."""
        return min(max(self.seen / self.expected, 0.0), 1.0) if self.error <= _MAX_ERROR else None


class _Growth(NamedTuple):
    """The demand of agents whose fraction has not changed: later divided by earlier."""

    factor: float = 1.0
    variance: float = 0.0


class ComplianceMeter:
    """The compliance of one class."""

    def __init__(self) -> None:
        self._evidence = Evidence()

    @property
    def compliance(self) -> float | None:
        """The part of the demand that obeys; None as long as the fractions have not changed enough to tell."""
        return self._evidence.compliance

    def measure(self, agents: Iterable[AgentHistory], *, demand: float) -> None:
        """Compare the current period of all agents of the class with the one before the last.

        `demand` is that of the current period, in requests.
        """
        changed: list[AgentHistory] = []
        unchanged: list[AgentHistory] = []
        for agent in agents:
            if agent.is_comparable:
                (unchanged if agent.old == agent.fraction else changed).append(agent)
        if not changed:
            return
        growth = _growth(unchanged)
        if 1.0 / _MAX_GROWTH <= growth.factor <= _MAX_GROWTH:
            total = self._evidence
            for agent in changed:
                if abs(agent.fraction - agent.old) >= _MIN_CHANGE * max(agent.fraction, agent.old):
                    total = total.plus(_evidence(agent, growth))
            # Many small changes, which are mostly noise, must not hide a large one.
            if total.error <= max(self._evidence.error, _MAX_ERROR):
                self._evidence = total.bounded(demand)


def _evidence(agent: AgentHistory, growth: _Growth) -> Evidence:
    """Return what an agent shows. Of the two periods, that with the larger fraction is the reference."""
    expected = agent.before * growth.factor
    more, fewer = (expected, agent.requests) if agent.old > agent.fraction else (agent.requests, expected)
    high, low = max(agent.old, agent.fraction), min(agent.old, agent.fraction)
    variance = agent.before * growth.factor**2 + agent.requests + growth.variance * expected**2
    variance += _BURSTS**2 * (more**2 + fewer**2)
    return Evidence(more - fewer, more * (high - low), (more - fewer) * (1.0 - high), variance)


def _growth(unchanged: Iterable[AgentHistory]) -> _Growth:
    before = after = squares = 0.0
    for agent in unchanged:
        before += agent.before
        after += agent.requests
        squares += agent.before * agent.before
    if not before or not after:
        return _Growth()
    variance = 1.0 / before + 1.0 / after + 2.0 * squares * (_BURSTS / before) ** 2
    # Few requests tell less about the growth than the assumption that there is none.
    return _Growth(after / before, variance) if variance <= _MAX_ERROR**2 else _Growth()


class Divided(NamedTuple):
    """Requests without advice, by whether their agents obey it."""

    obeying: float
    ignoring: float


class PooledCompliance:
    """The compliance of agents that are not known, from the requests of all of them and the fraction in force.

    It is the change of their requests from period to period by that of the fraction. So a demand that makes a step
    shows nothing: it does so in one period, before the fraction follows. Until they show something else, they obey:
    agents that fetch with one identity and send with another are not known either.
    """

    def __init__(self, periods: int) -> None:
        self.compliance = 1.0
        """The part of their demand that obeys, rounded up by the standard error."""
        self._periods: deque[tuple[float, float, float]] = deque(maxlen=periods)

    def add(self, fraction: float, rate: float, duration: float) -> None:
        """Add a period: the fraction in force, the requests per second, and its seconds."""
        self._periods.append((fraction, rate, rate / duration))
        changes = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(self._periods)]
        squares = sum(change * change for change, _ in changes)
        if len(changes) < _MIN_CHANGES or squares <= (_MIN_SPREAD * max(each[0] for each in self._periods)) ** 2:
            return
        slope = max(sum(change * seen for change, seen in changes) / squares, 0.0)
        residuals = sum((seen - slope * change) ** 2 for change, seen in changes)
        random = 2.0 * sum(variance for _, _, variance in self._periods)
        error = math.sqrt(max(residuals, random) / (len(changes) - 1.0) / squares)
        demand = rate + slope * (1.0 - fraction)
        if demand > 0.0 and error <= _MAX_ERROR * demand:
            self.compliance = min((slope + error) / demand, 1.0)

    def divide(self, requests: float, fraction: float) -> Divided:
        """Return what would have arrived in place of these requests without the fraction in force."""
        demand = requests / (self.compliance * fraction + 1.0 - self.compliance)
        return Divided(demand * self.compliance, demand * (1.0 - self.compliance))
