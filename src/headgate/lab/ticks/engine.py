"""The engine of worlds in discrete time: it asks the agents that are due, and hands their requests to origins.

The steps of a tick, at whose instant everything in it happens:

1. Every requester is asked, in the order of the scenario.
2. Of the other agents, those that are due are asked, in the order in which they were entered in the calendar.
3. Each origin, in the order of the scenario, answers the requests that arrive: those that were sent in this tick, or
   earlier if there is a network delay. The answers are delivered in their order, at once or after the delay; an agent
   that takes its answer is entered in the calendar.

An agent has at most one request under way. It is due `ticks_of(seconds)` ticks after the tick in which it was asked, or
took its answer, and at least one.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from headgate.lab.policies import AgentView, Answer
from headgate.lab.ticks.agents import CalendarAgent, Requester
from headgate.lab.ticks.origins import Server

START: Final = 2.0**30
"""The instant at which worlds begin, in seconds since 1970. Near it, the sums of short binary fractions are exact."""

TOLERANCE: Final = 1e-9
"""Ticks; rounding errors of sums do not make an agent wait one tick more."""


class Origin:
    """A server in a world: the network between it and the agents, and what is measured of it."""

    __slots__ = (
        "_answers",
        "_delay",
        "_requests",
        "arrivals",
        "load",
        "server",
        "signals",
        "useful",
        "useful_by_tick",
        "waiting",
    )

    def __init__(self, server: Server, delay: int) -> None:
        self.server = server
        """The server."""
        self.arrivals: list[AgentView] = []
        """The agents that have sent a request in this tick."""
        self.load: list[int] = []
        """The number of requests that arrive in each tick."""
        self.useful = 0
        """The responses that agents could use; they count them."""
        self.useful_by_tick: list[int] = []
        """The same number at the end of each tick."""
        self.waiting: list[int] = []
        """The requests in the queue of the server at the end of each tick."""
        self.signals: defaultdict[str, list[float]] = defaultdict(list)
        """What the operator's policy records in each tick."""
        self._delay = delay
        self._requests: dict[int, list[AgentView]] = {}
        self._answers: dict[int, Sequence[Answer]] = {}

    def answer(self, tick: int, now: float) -> Sequence[Answer]:
        """Send the requests of this tick; return the responses that reach their agents in it."""
        arrivals, self.arrivals = self.arrivals, []
        if not self._delay:
            self.load.append(len(arrivals))
            return self.server.answer(arrivals, now)
        self._requests[tick + self._delay] = arrivals
        arrivals = self._requests.pop(tick, [])
        self.load.append(len(arrivals))
        self._answers[tick + self._delay] = self.server.answer(arrivals, now)
        return self._answers.pop(tick, ())

    def end_tick(self, record: bool) -> None:  # noqa: FBT001 - called once a tick
        """Record what is measured in a tick."""
        self.useful_by_tick.append(self.useful)
        if record:
            self.waiting.append(self.server.waiting)
            for name, value in self.server.policy.signals().items():
                self.signals[name].append(value)


class Engine:
    """Runs requesters, which are asked in every tick, and the other agents, which a calendar has."""

    def __init__(
        self,
        requesters: Sequence[Requester],
        agents: Sequence[CalendarAgent],
        origins: Sequence[Origin],
        *,
        length: float,
        ticks: int,
    ) -> None:
        self.refused: list[int] = []
        """The attempts in each tick that policies refused, of agents in the calendar."""
        self._requesters = requesters
        self._origins = origins
        self._length = length
        self._ticks = ticks
        self._due: defaultdict[int, list[CalendarAgent]] = defaultdict(list)
        self._held = [0] * (ticks + 1)
        for agent in agents:
            self._enter(agent, 0, agent.first())

    @property
    def holds(self) -> list[int]:
        """The number of agents at the end of each tick that wait because their policy has refused an attempt."""
        return list(accumulate(self._held[:-1]))

    def run(self, on_tick: Callable[[int], None], *, record: bool) -> None:
        """Run all ticks; `on_tick` is called with the number of each at its begin."""
        for tick in range(self._ticks):
            on_tick(tick)
            now = START + tick * self._length
            for requester in self._requesters:
                if requester.attempt(now):
                    requester.origin.arrivals.append(requester)
            self._ask(tick, now)
            for origin in self._origins:
                for agent, status, headers in origin.answer(tick, now):
                    self._enter(agent, tick, agent.answered(status, headers, now))  # type: ignore[arg-type,attr-defined]  # one of `arrivals`
                origin.end_tick(record)

    def _ask(self, tick: int, now: float) -> None:
        """Ask the agents that are due in a tick."""
        refused = 0
        for agent in self._due.pop(tick, ()):
            seconds = agent.attempt(now)
            if seconds is None:
                agent.origin.arrivals.append(agent)
            else:
                refused += 1
                self._held[tick] += 1
                self._held[self._enter(agent, tick, seconds)] -= 1
        self.refused.append(refused)

    def _enter(self, agent: CalendarAgent, tick: int, seconds: float) -> int:
        """Enter an agent in the calendar, unless it is due after the last tick; return the tick, or the end."""
        if seconds >= self._ticks * self._length:  # perhaps infinite
            return self._ticks
        due = min(tick + max(1, math.ceil(seconds / self._length - TOLERANCE)), self._ticks)
        if due < self._ticks:
            self._due[due].append(agent)
        return due
