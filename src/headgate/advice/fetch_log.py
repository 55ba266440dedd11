"""What the agents of one class were served, and so which fraction is in force among them.

An agent obeys the advice that it fetched until that is stale, whatever is published meanwhile. The origin has served
it, so it knows the fraction of each agent without asking. The log is bounded: an agent beyond the bound replaces the
one that fetched first. What was published before the earliest fetch in a full log tells what such agents have.
"""

from collections.abc import Hashable
from typing import NamedTuple


class InForce(NamedTuple):
    """The fraction in force among the agents of a class, as a mean over some time."""

    mean: float
    """Mean fraction of the agents, each counted once; a disallowed agent has 0."""
    disallowed: float
    """The part of the agents that were served `disallow`, from 0 to 1."""


class _Served(NamedTuple):
    fraction: float
    expires: float
    max_age: float


class FetchLog:
    """The last fetch of each agent of one class, with the mean of the fractions over time.

    As long as no agent is known, the mean is `fraction`, then the last one that was known.
    """

    __slots__ = ("_disallowed", "_elapsed", "_integral", "_known", "_max_agents", "_served", "_since", "_total")

    def __init__(self, max_agents: int, *, fraction: float = 1.0) -> None:
        self._max_agents = max_agents
        self._served: dict[Hashable, _Served] = {}
        self._known = _in_force(fraction)
        self._total = 0.0
        self._disallowed = 0
        self._since: float | None = None
        self._elapsed = 0.0
        self._integral = (0.0, 0.0)

    def __len__(self) -> int:
        """Return the number of agents whose advice was fresh when the log was last read."""
        return len(self._served)

    @property
    def full_since(self) -> float | None:
        """The time of the earliest fetch in a full log, which has replaced agents that fetched before; else None."""
        if len(self._served) < self._max_agents:
            return None
        earliest = next(iter(self._served.values()))
        return earliest.expires - earliest.max_age

    def add(self, agent: Hashable, fraction: float, *, now: float, max_age: float) -> None:
        """Record that an agent was served a fraction (0 for `disallow`) that stays fresh for `max_age` seconds."""
        self._integrate(now)
        self._remove(agent)
        if len(self._served) >= self._max_agents:
            self._remove(next(iter(self._served)))  # the dictionary is in the order of fetches
        self._served[agent] = _Served(fraction, now + max_age, max_age)
        self._total += fraction
        self._disallowed += fraction <= 0.0

    def fraction_of(self, agent: Hashable) -> float | None:
        """Return the fraction that an agent obeys; None if it is not known."""
        served = self._served.get(agent)
        return None if served is None else served.fraction

    def read(self, *, now: float) -> InForce:
        """Return the fraction in force since the last call, and remove the agents whose advice has become stale."""
        self._integrate(now)
        if self._elapsed > 0.0:
            mean, disallowed = (part / self._elapsed for part in self._integral)
        else:
            mean, disallowed = self._current()
        self._elapsed, self._integral = 0.0, (0.0, 0.0)
        self._expire(now)
        return InForce(mean, disallowed)

    def _current(self) -> InForce:
        if self._served:
            # The sum of many fractions can be rounded to slightly more than their number, or less than 0.
            mean = min(max(self._total / len(self._served), 0.0), 1.0)
            self._known = InForce(mean, self._disallowed / len(self._served))
        return self._known

    def _integrate(self, now: float) -> None:
        """Add the time since the last event, with the mean that applied; a clock that was set back adds nothing."""
        if self._since is not None and now > self._since:
            elapsed, current = now - self._since, self._current()
            self._elapsed += elapsed
            self._integral = (
                self._integral[0] + current.mean * elapsed,
                self._integral[1] + current.disallowed * elapsed,
            )
        self._since = now

    def _remove(self, agent: Hashable) -> None:
        served = self._served.pop(agent, None)
        if served is not None:
            self._total -= served.fraction
            self._disallowed -= served.fraction <= 0.0

    def _expire(self, now: float) -> None:
        self._current()  # what is in force if no agent remains
        # After a clock was set back, an entry from its future is fresh for its own max-age and no longer.
        self._served = {
            agent: served._replace(expires=min(served.expires, now + served.max_age))
            for agent, served in self._served.items()
            if served.expires > now
        }
        self._total = sum(served.fraction for served in self._served.values())
        self._disallowed = sum(served.fraction <= 0.0 for served in self._served.values())


def _in_force(fraction: float) -> InForce:
    return InForce(fraction, float(fraction <= 0.0))
