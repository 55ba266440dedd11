"""Servers in discrete time: what they answer to the requests of each tick."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from headgate.lab.chance import Draw
from headgate.lab.policies import NO_FIELDS, AgentView, Answer, OriginPolicy
from headgate.lab.ticks.settings import Cooling, Metered, Origin
from headgate.release import ASAP

OK, ERROR, UNAVAILABLE = 200, 500, 503

_TOLERANCE: Final = 1e-9
"""Requests; rounding errors of sums do not refuse a request that just fits."""


class Server(ABC):
    """What all servers have in common: a gate or none before them, times when they are down, and errors."""

    def __init__(self, settings: Origin, *, capacity: float, tick: float, errors: float, draw: Draw) -> None:
        self.name = settings.name
        """Its name in the scenario."""
        self.url = f"http://{settings.name}.example/resource"
        """The URL that agents request."""
        self.capacity = capacity
        """Requests that it serves in a second."""
        self.refusal_cost = 0.0
        """What a refusal costs, as a share of a request that is served."""
        self.capacity_per_tick = capacity * tick
        """Requests that it serves in a tick."""
        self.down: tuple[float, float] = (ASAP, ASAP)
        """The instants between which it is down."""
        self.policy = OriginPolicy(self, draw)
        """What its operator does under the policy."""
        self._errors = errors
        self._draw = draw

    def is_down(self, now: float) -> bool:
        """Return whether the server is down: strictly between the two instants."""
        return self.down[0] < now < self.down[1]

    def answer(self, arrivals: Sequence[AgentView], now: float) -> list[Answer]:
        """Return the responses to the requests that arrive in a tick, and to earlier ones that are ready."""
        policy = self.policy
        if type(policy) is OriginPolicy:  # saves three calls for each request
            return self._respond(arrivals, 0, now)
        admission = policy.admit(arrivals, now=now)
        responses = self._respond(admission.admitted, len(admission.refused), now)
        answers = [policy.answer(agent, status, headers, now=now) for agent, status, headers in responses]
        return [*answers, *admission.refused]

    def _respond(self, arrivals: Sequence[AgentView], refused: int, now: float) -> list[Answer]:
        if self.is_down(now):
            served = 0
        else:
            served = self.count_served(len(arrivals), refused)
            arrivals = self.choose(arrivals, served)
        answers: list[Answer] = [(agent, OK, NO_FIELDS) for agent in arrivals[:served]]
        if self._errors:
            # Draws the error of each request that is served, in their order.
            answers = [(agent, ERROR if self._draw() < self._errors else OK, NO_FIELDS) for agent in arrivals[:served]]
        answers += [(agent, UNAVAILABLE, NO_FIELDS) for agent in arrivals[served:]]
        return answers

    @abstractmethod
    def count_served(self, count: int, refused: int) -> int:
        """Return how many of the `count` requests of a tick the server serves; a gate has refused `refused` others.

        Called in each tick in which the server is up.
        """

    def choose(self, arrivals: Sequence[AgentView], served: int) -> Sequence[AgentView]:  # noqa: ARG002 - for subclasses
        """Return the requests of a tick with those that are served first: the first ones that arrived."""
        return arrivals


class CoolingServer(Server):
    """A server that fails while it is overloaded, and for some ticks after (see `Cooling`)."""

    def __init__(self, settings: Cooling, *, capacity: float, tick: float, errors: float, draw: Draw) -> None:
        super().__init__(settings, capacity=capacity, tick=tick, errors=errors, draw=draw)
        self._cooling = settings.cooling
        self._left = 0

    def count_served(self, count: int, refused: int) -> int:  # noqa: ARG002 - refusals of a gate cost nothing here
        """Return the capacity, or 0 if the server cools down."""
        served = 0 if self._left else min(count, math.floor(self.capacity_per_tick + _TOLERANCE))
        if count > self.capacity_per_tick:
            self._left = self._cooling
        elif self._left:
            self._left -= 1
        return served


class MeteredServer(Server):
    """A server that spends a part of its capacity on refusals (see `Metered`)."""

    def __init__(self, settings: Metered, *, capacity: float, tick: float, errors: float, draw: Draw) -> None:
        super().__init__(settings, capacity=capacity, tick=tick, errors=errors, draw=draw)
        self.refusal_cost = settings.refusal
        self._rest = 0.0

    def count_served(self, count: int, refused: int) -> int:
        """Return the number of all requests, or of as many as can be served while the others are refused."""
        cost = self.refusal_cost
        # What was left of a request in the last tick is used in this one.
        room = max(0.0, self._rest + self.capacity_per_tick - cost * refused)
        if count <= room + _TOLERANCE:
            self._rest = min(room - count, 1.0)
            return count
        # The most for which `served`, and the cost of the others, do not exceed the room.
        served = 0
        if cost < 1.0:
            served = max(0, math.floor((room - cost * count) / (1.0 - cost) + _TOLERANCE))
        self._rest = max(0.0, min(room - served - cost * (count - served), 1.0))
        return served

    def choose(self, arrivals: Sequence[AgentView], served: int) -> Sequence[AgentView]:
        """Return the requests with those that are served first, chosen at random unless all are."""
        count = len(arrivals)
        if served == count:
            return arrivals
        chosen = list(arrivals)
        # Draws one number for each request that is served: the first steps of a Fisher-Yates shuffle.
        for place in range(served):
            other = place + int(self._draw() * (count - place))
            chosen[place], chosen[other] = chosen[other], chosen[place]
        return chosen
