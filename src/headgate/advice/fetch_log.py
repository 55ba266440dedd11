"""What the agents of one class were served and sent, and so which fraction is in force among them.

An agent obeys the advice that it fetched until that is stale, whatever is published meanwhile. The origin has served
it, so it knows the fraction of each agent without asking. The log is bounded: an agent beyond the bound replaces the
one that fetched first. What was published before the earliest fetch in a full log tells what such agents have.

An agent whose advice is stale stays in the log until it is forgotten: its history goes on when it fetches again.
"""

from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple

from headgate.advice.agent_history import AgentHistory, Conduct

FORGOTTEN_AFTER: Final = 2.0
"""Max-ages from a fetch until its agent is forgotten. A class whose last fetch is so long ago does not fetch advice.
Two, so that agents that fetch a little late are known all the time."""
_EARLY_FETCH: Final = 0.05
"""Max-ages by which an agent may fetch before its advice is stale, without being taken for several."""
_MAX_FETCHES: Final = 32
"""Fetches of one agent that are remembered, where each of a different fraction or at another time."""
_DIGITS: Final = 9
"""Decimal places of the mean of fractions; those that are published have fewer."""


class InForce(NamedTuple):
    """The fraction in force among the agents of a class, as a mean over some time."""

    mean: float
    """Mean fraction of the agents, each counted once; a disallowed agent has 0."""
    disallowed: float
    """The part of the agents that were served `disallow`, from 0 to 1."""


class Requests(NamedTuple):
    """The requests of a period."""

    arrivals: float = 0.0
    demand: float = 0.0
    """Each request, without those that disobey, divided by the fraction of its agent at its time."""
    disobeying: float = 0.0
    """Those of agents that were disallowed, or whose conduct is to disobey."""
    proven: float = 0.0
    """Those of the latter alone: after a fetch, some may come late."""
    senders: int = 0
    """The number of the latter."""
    silent: int = 0
    """The number of agents that were disallowed, have sent no request since, but some before: those that obey."""


class _Fetch(NamedTuple):
    """A fetch that is fresh until it expires, or `number` of the same fraction at about the same time."""

    fraction: float
    expires: float
    number: int = 1


class _Served:
    """An agent, or several of the same name, with what they were served."""

    __slots__ = ("_fetches", "history", "max_age")

    def __init__(self, history: AgentHistory) -> None:
        self.history = history
        self.max_age = 0.0
        """That of the last fetch."""
        self._fetches: list[_Fetch] = []

    @property
    def expires(self) -> float:
        """When the last fetch becomes stale."""
        return self._fetches[-1].expires

    def add(self, fraction: float, *, now: float, max_age: float) -> None:
        """Add a fetch, in place of the earliest one if that is stale, or nearly: it is that of the same agent."""
        fetches, early = self._fetches, _EARLY_FETCH * max_age
        if fetches and fetches[0].expires <= now + early:
            first = fetches.pop(0)
            if first.number > 1:
                fetches.insert(0, first._replace(number=first.number - 1))
        expires, number = now + max_age, 1
        last = fetches[-1] if fetches and early else None
        if last is not None and last.fraction == fraction and last.expires // early == expires // early:
            number += fetches.pop().number
        self._fetches = [*fetches, _Fetch(fraction, expires, number)][-_MAX_FETCHES:]
        self.max_age = max_age
        self._drop_stale(now)

    def read(self, *, now: float) -> None:
        """Find the fetches that have become stale; one of an agent that fetched once stays."""
        # Nearly all agents, so it has to be fast.
        if len(self._fetches) > 1 or self._fetches[0].expires > now + self.max_age:
            self._drop_stale(now)

    def _drop_stale(self, now: float) -> None:
        """Drop stale fetches, all but the last one, and give the history the mean fraction of the others."""
        # After a clock was set back, a fetch from its future is fresh for its own max-age and no longer.
        latest = now + self.max_age
        fresh = [each._replace(expires=min(each.expires, latest)) for each in self._fetches if each.expires > now]
        fresh = fresh or self._fetches[-1:]
        total = sum(each.fraction * each.number for each in fresh)
        # Rounded, because the compliance compares fractions to find those that have not changed.
        fraction = round(total / sum(each.number for each in fresh), _DIGITS)
        if fraction != self.history.fraction:
            self.history.change(fraction)
        self._fetches = fresh


class FetchLog:
    """The last fetch of each agent of one class, with the mean of the fractions over time.

    As long as no agent is known, the mean is `fraction`, then the last one that was known. Requests are divided by
    `floor` if the fraction of their agent is less.
    """

    def __init__(self, max_agents: int, *, fraction: float = 1.0, floor: float = 0.001, patience: int = 0) -> None:
        self._max_agents = max_agents
        self._patience = patience
        self._floor = floor
        self._served: dict[Hashable, _Served] = {}
        """Agents with fresh advice, in the order of their fetches."""
        self._stale: dict[Hashable, _Served] = {}
        """Those whose advice has become stale, in the order in which that was noticed."""
        self._known = InForce(fraction, float(fraction <= 0.0))
        self._total = 0.0
        self._disallowed = 0
        self._replaced = Requests()
        """Requests in this period of agents that others have replaced."""
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
        known = self._remove(agent) or self._stale.pop(agent, None)
        if len(self._served) + len(self._stale) >= self._max_agents:
            self._replace_earliest()
        if known is None:
            known = _Served(AgentHistory(fraction, floor=self._floor, patience=self._patience))
        known.add(fraction, now=now, max_age=max_age)
        self._served[agent] = known
        self._total += known.history.fraction
        self._disallowed += known.history.fraction <= 0.0

    def history(self, agent: Hashable) -> AgentHistory | None:
        """Return the history of an agent whose advice is fresh, to count its requests; None if it is not known."""
        served = self._served.get(agent)
        return None if served is None else served.history

    def histories(self) -> Iterator[AgentHistory]:
        """Yield the history of each agent whose advice was fresh when the log was last read."""
        return (served.history for served in self._served.values())

    def requests(self) -> Requests:
        """Return the requests of these agents since the last call of `begin`, and of those that they replaced."""
        arrivals, demand, disobeying, proven, senders, silent = self._replaced
        for history in self.histories():
            arrivals += history.requests
            demand += history.demand
            disobeying += history.disobeying
            if history.conduct is Conduct.DISOBEYS:
                proven += history.disobeying
                senders += 1
            elif history.fraction <= 0.0 and history.conduct is Conduct.SEEN:
                silent += 1
        return Requests(arrivals, demand, disobeying, proven, senders, silent)

    def begin(self, *, valid: bool = True) -> None:
        """Begin a new period for all agents; one that is not valid is compared with none."""
        self._replaced = Requests()
        for served in (*self._served.values(), *self._stale.values()):
            if valid:
                served.history.begin()
            else:
                served.history.discard()

    def read(self, *, now: float) -> InForce:
        """Return the fraction in force since the last call, and find the agents whose advice has become stale."""
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

    def _remove(self, agent: Hashable) -> _Served | None:
        served = self._served.pop(agent, None)
        if served is not None:
            self._total -= served.history.fraction
            self._disallowed -= served.history.fraction <= 0.0
        return served

    def _replace_earliest(self) -> None:
        """Remove an agent with stale advice, otherwise the one that fetched first."""
        if self._stale:
            del self._stale[next(iter(self._stale))]
            return
        replaced = self._remove(next(iter(self._served)))
        assert replaced is not None
        history = replaced.history
        self._replaced = self._replaced._replace(
            arrivals=self._replaced.arrivals + history.requests,
            demand=self._replaced.demand + history.demand,
            disobeying=self._replaced.disobeying + history.disobeying,
        )

    def _expire(self, now: float) -> None:
        self._current()  # what is in force if no agent remains
        fresh: dict[Hashable, _Served] = {}
        stale = {agent: served for agent, served in self._stale.items() if _is_kept(served, now)}
        for agent, served in self._served.items():
            if served.expires > now:
                served.read(now=now)
                fresh[agent] = served
            elif _is_kept(served, now):
                stale[agent] = served
        self._served, self._stale = fresh, stale
        self._total = sum(served.history.fraction for served in fresh.values())
        self._disallowed = sum(served.history.fraction <= 0.0 for served in fresh.values())


def _is_kept(served: _Served, now: float) -> bool:
    return -served.max_age < now - served.expires <= (FORGOTTEN_AFTER - 1.0) * served.max_age
