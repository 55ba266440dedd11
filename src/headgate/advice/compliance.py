"""Compliance: the part of a class's demand that obeys the advice, from what agents send before and after a fetch.

    compliance = the change that was seen / the change that would be seen if all agents obeyed

Arrivals alone do not tell. While the demand rises and the published fraction falls, agents that obey and agents that do
not send the same: a constant number of requests. So agents are compared with each other. Those whose fraction has just
changed are compared with themselves two periods before, and the growth of those whose fraction has not changed is
divided out. Without such agents (all fetch at once, or there is only one) the demand is assumed to be constant.

Nothing is measured of requests whose agent is not known, and of changes below a tenth. Old evidence is not forgotten by
time, but replaced by later evidence: a class whose fraction does not change keeps its compliance.

This file reads no clock and draws no numbers.
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

OBEYS_FROM: Final = 0.5
"""Compliance below which a class, or an agent, does not obey."""

_MIN_CHANGE: Final = 0.1
"""The smallest change of a fraction that is evidence, relative to the larger fraction."""
_MAX_GROWTH: Final = 2.0
"""While the demand grows or shrinks by more than this factor within two periods, nothing is compared."""
_BURSTS: Final = 0.1
"""Standard deviation of an agent's demand between two periods, as a part of it, beside that of random arrivals."""
_MAX_ERROR: Final = 0.25
"""The standard error up to which a compliance is known."""
_MEMORY: Final = 2.0
"""Evidence that is remembered: changes that, together, move the whole demand from nothing to all this many times."""


class _Period(NamedTuple):
    """What an agent was served and sent in a period."""

    requests: float
    first: float
    """The fraction at the begin."""
    last: float
    """The fraction at the end."""

    @property
    def is_constant(self) -> bool:
        return self.first == self.last


class Evidence:
    """Sums of changes in requests: those seen and those expected, with the variance of the former."""

    __slots__ = ("expected", "seen", "variance")

    def __init__(self) -> None:
        self.seen = self.expected = self.variance = 0.0

    def add(self, seen: float, expected: float, variance: float) -> None:
        """Add a change; `expected` is that of an agent that obeys, and positive."""
        self.seen += seen
        self.expected += expected
        self.variance += variance

    def bound(self, demand: float) -> None:
        """Let later evidence replace earlier evidence; `demand` is the requests of a period without advice."""
        if self.expected > _MEMORY * demand > 0.0:
            factor = _MEMORY * demand / self.expected
            self.seen, self.expected, self.variance = (
                factor * part for part in (self.seen, self.expected, self.variance)
            )

    def plus(self, other: "Evidence") -> "Evidence":
        """Return both together."""
        total = Evidence()
        for each in (self, other):
            total.add(each.seen, each.expected, each.variance)
        return total

    @property
    def error(self) -> float:
        """The standard error of `compliance`; infinity without evidence."""
        return math.sqrt(self.variance) / self.expected if self.expected > 0.0 else math.inf

    @property
    def compliance(self) -> float | None:
        """The seen change divided by the expected one, from 0 to 1; None if the noise permits no answer."""
        return min(max(self.seen / self.expected, 0.0), 1.0) if self.error <= _MAX_ERROR else None


class AgentHistory:
    """The fraction and the requests of one agent: in the current period, and in the two before."""

    __slots__ = ("_divided", "_first", "_floor", "_middle", "_oldest", "_undivided", "evidence", "fraction", "requests")

    def __init__(self, fraction: float, *, floor: float) -> None:
        self.fraction = fraction
        """The fraction that the agent was served last; 0 for `disallow`."""
        self.requests = 0.0
        """Requests in this period. The caller adds each request here."""
        self.evidence = Evidence()
        """How the agent has responded to changes."""
        self._floor = floor
        self._undivided = self._divided = 0.0  # requests before the last fetch in this period, and their demand
        # Requests before the first fetch are not counted for this agent, so its first period is compared with none.
        self._first = math.nan
        self._middle: _Period | None = None
        self._oldest: _Period | None = None

    @property
    def demand(self) -> float:
        """The requests in this period, each divided by the fraction at its time."""
        return self._divided + (self.requests - self._undivided) / max(self.fraction, self._floor)

    def change(self, fraction: float) -> None:
        """Record that the agent was served another fraction."""
        self._divided, self._undivided = self.demand, self.requests
        self.fraction = fraction

    def compared(self) -> "_Comparison | None":
        """Return the current period compared with the one before the last; None if they cannot be compared."""
        oldest, middle, latest = self._oldest, self._middle, self._latest
        if oldest is None or middle is None or not (oldest.is_constant and latest.is_constant):
            return None
        # The fraction changed in the middle period, or at its end, or not at all.
        if middle.first != oldest.last or middle.last != latest.first:
            return None
        return _Comparison(self, oldest.requests, latest.requests, oldest.last, latest.last)

    def begin(self) -> None:
        """Begin the next period."""
        self._oldest, self._middle = self._middle, self._latest
        self._first = self.fraction
        self.requests = self._undivided = self._divided = 0.0

    def discard(self) -> None:
        """Begin the next period; those before it are compared with none."""
        self.begin()
        self._middle = self._oldest = None

    @property
    def _latest(self) -> _Period:
        return _Period(self.requests, self._first, self.fraction)


class _Comparison(NamedTuple):
    """An agent in two periods, between which it may have fetched another fraction."""

    agent: AgentHistory
    before: float
    """Requests of the earlier period."""
    after: float
    """Requests of the later period."""
    old: float
    """The fraction of the earlier period."""
    new: float
    """The fraction of the later period."""

    @property
    def is_change(self) -> bool:
        return self.new != self.old and abs(self.new - self.old) >= _MIN_CHANGE * max(self.new, self.old)

    def add_to(self, total: Evidence, growth: "_Growth") -> None:
        """Add what it shows to the evidence of the agent and of the class.

        Of the two periods, that with the larger fraction is the reference. With `obeying` the part of the demand that
        obeys, requests are demand * (obeying * fraction + 1 - obeying), so their difference is demand * obeying *
        (high - low), and the demand is what arrives with `high` and what obeyed by staying away.
        """
        expected_before = self.before * growth.factor
        if self.old > self.new:
            high, low, more, fewer = self.old, self.new, expected_before, self.after
        else:
            high, low, more, fewer = self.new, self.old, self.after, expected_before
        seen = more - fewer
        expected = more * (high - low) + max(seen, 0.0) * (1.0 - high)
        variance = (
            self.before * growth.factor**2 + self.after + (_BURSTS * more) ** 2 + (_BURSTS * fewer) ** 2
        ) + growth.variance * expected_before**2
        if expected > 0.0:
            self.agent.evidence.add(seen, expected, variance)
            self.agent.evidence.bound(expected / (high - low))
            total.add(seen, expected, variance)


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

    def measure(self, agents: Iterable[AgentHistory]) -> None:
        """Compare the current period of all agents of the class with the one before the last."""
        demand, changed, unchanged = 0.0, [], []
        for agent in agents:
            comparison = agent.compared()
            demand += agent.demand
            if comparison is None:
                continue
            if comparison.is_change:
                changed.append(comparison)
            elif comparison.old == comparison.new:
                unchanged.append(comparison)
        if not changed:
            return
        growth = _growth(unchanged)
        if 1.0 / _MAX_GROWTH <= growth.factor <= _MAX_GROWTH:
            latest = Evidence()
            for comparison in changed:
                comparison.add_to(latest, growth)
            total = self._evidence.plus(latest)
            # Many small changes, which are mostly noise, must not hide a large one.
            if total.error <= max(self._evidence.error, _MAX_ERROR):
                self._evidence = total
            self._evidence.bound(demand)


def _growth(unchanged: Iterable[_Comparison]) -> _Growth:
    before = after = squares = 0.0
    for comparison in unchanged:
        before += comparison.before
        after += comparison.after
        squares += comparison.before**2
    if not before or not after:
        return _Growth()
    variance = 1.0 / before + 1.0 / after + 2.0 * squares * (_BURSTS / before) ** 2
    # Few requests tell less about the growth than the assumption that there is none.
    return _Growth(after / before, variance) if variance <= _MAX_ERROR**2 else _Growth()
