"""Servers in discrete time: what they answer to the requests of each tick."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.lab.chance import Draw
from headgate.lab.policies import NO_FIELDS, AgentView, Answer, OriginPolicy
from headgate.lab.ticks.settings import Cooling, Metered, Origin, Queue

OK, ERROR, UNAVAILABLE = 200, 500, 503

_TOLERANCE: Final = 1e-9
"""Requests; rounding errors of sums do not refuse a request that just fits."""


class Served(NamedTuple):
    """What a server does in one tick with its requests; those that are in neither list wait."""

    served: Sequence[AgentView]
    refused: Sequence[AgentView] = ()


class Pace(NamedTuple):
    """What a scenario sets for all servers."""

    capacity: float
    """Requests per second."""
    tick: float
    """Seconds."""
    errors: float
    """The share of the requests that are served in vain."""


class Server(ABC):
    """What all servers have in common: gates or none before them, times when they are down, and errors."""

    refusal_cost = 0.0
    """What a refusal costs, as a share of a request that is served."""

    def __init__(self, settings: Origin, pace: Pace, draw: Draw) -> None:
        self.name = settings.name
        """Its name in the scenario."""
        self.url = f"http://{settings.name}.example/resource"
        """The URL that agents request."""
        self.capacity = pace.capacity
        """Requests that it serves in a second."""
        self.tick = pace.tick
        """Seconds between two calls of `answer`."""
        self.capacity_per_tick = pace.capacity * pace.tick
        """Requests that it serves in a tick."""
        self.outages: list[tuple[float, float]] = []
        """The pairs of instants between which it is down."""
        self.policy = OriginPolicy(self, draw)
        """What its operator does under the policy."""
        self.limit: OriginPolicy | None = None
        """The gate that limits each client, before that of the policy; None without one."""
        self._errors = pace.errors
        self._draw = draw

    @property
    def waiting(self) -> int:
        """The number of requests in its queue."""
        return 0

    def is_down(self, now: float) -> bool:
        """Return whether the server is down: strictly between the two instants of an outage."""
        return any(start < now < end for start, end in self.outages)

    def answer(self, arrivals: Sequence[AgentView], now: float) -> list[Answer]:
        """Return the responses to the requests that arrive in a tick, and to earlier ones that are ready."""
        refusals: list[Answer] = []
        for gate in (self.limit, self.policy):
            if gate is not None and type(gate) is not OriginPolicy:
                arrivals, refused = gate.admit(arrivals, now=now)
                refusals += refused
        answers = self._respond(arrivals, len(refusals), now)
        policy = self.policy
        if type(policy) is not OriginPolicy:
            answers = [policy.answer(agent, status, headers, now=now) for agent, status, headers in answers]
        return answers + refusals

    def _respond(self, arrivals: Sequence[AgentView], refused: int, now: float) -> list[Answer]:
        outcome = Served((), self.fail(arrivals)) if self.is_down(now) else self.serve(arrivals, refused, now)
        if self._errors:
            # Draws the error of each request that is served, in their order.
            answers: list[Answer] = [
                (agent, ERROR if self._draw() < self._errors else OK, NO_FIELDS) for agent in outcome.served
            ]
        else:
            answers = [(agent, OK, NO_FIELDS) for agent in outcome.served]
        answers += [(agent, UNAVAILABLE, NO_FIELDS) for agent in outcome.refused]
        return answers

    @abstractmethod
    def count_served(self, count: int, refused: int) -> int:
        """Return how many of `count` requests the server serves in a tick; a gate has refused `refused` others.

        Called in each tick in which the server is up.
        """

    def choose(self, arrivals: Sequence[AgentView], served: int) -> Sequence[AgentView]:  # noqa: ARG002 - for subclasses
        """Return the requests of a tick with those that are served first: the first ones that arrived."""
        return arrivals

    def serve(self, arrivals: Sequence[AgentView], refused: int, now: float) -> Served:  # noqa: ARG002 - for subclasses
        """Decide on the requests that arrive in a tick, and on those that wait, while the server is up."""
        served = self.count_served(len(arrivals), refused)
        arrivals = self.choose(arrivals, served)
        return Served(arrivals[:served], arrivals[served:])

    def fail(self, arrivals: Sequence[AgentView]) -> Sequence[AgentView]:
        """Return the requests that fail because the server is down."""
        return arrivals


class CoolingServer(Server):
    """A server that fails while it is overloaded, and for some ticks after (see `Cooling`)."""

    def __init__(self, settings: Cooling, pace: Pace, draw: Draw) -> None:
        super().__init__(settings, pace, draw)
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

    def __init__(self, settings: Metered, pace: Pace, draw: Draw) -> None:
        super().__init__(settings, pace, draw)
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


class QueueServer(Server):
    """A server with a queue (see `Queue`)."""

    def __init__(self, settings: Queue, pace: Pace, draw: Draw) -> None:
        super().__init__(settings, pace, draw)
        self._size = settings.queue
        self._queue: deque[tuple[AgentView, float]] = deque()
        self._rest = 0.0
        self.waits: list[tuple[int, float]] = []
        """For each tick, the number of requests that were served, and the seconds that they waited."""

    @property
    def waiting(self) -> int:
        """The number of requests in its queue."""
        return len(self._queue)

    def count_served(self, count: int, refused: int) -> int:  # noqa: ARG002 - refusals of a gate cost nothing here
        """Return how many of `count` requests that wait or arrive are served."""
        room = self._rest + self.capacity_per_tick
        served = min(count, math.floor(room + _TOLERANCE))
        self._rest = min(room - served, 1.0)
        return served

    def serve(self, arrivals: Sequence[AgentView], refused: int, now: float) -> Served:
        """Serve the queue, then the requests that arrive; keep what fits into the queue, and refuse the others."""
        queue = self._queue
        queue.extend((agent, now) for agent in arrivals)
        served = [queue.popleft() for _ in range(self.count_served(len(queue), refused))]
        self.waits.append((len(served), sum(now - arrived for _, arrived in served)))
        excess = [queue.pop()[0] for _ in range(len(queue) - self._size)]
        return Served([agent for agent, _ in served], excess[::-1])

    def fail(self, arrivals: Sequence[AgentView]) -> Sequence[AgentView]:
        """Return the requests that fail because the server is down: those in the queue, too."""
        self.waits.append((0, 0.0))
        failed = [*(agent for agent, _ in self._queue), *arrivals]
        self._queue.clear()
        return failed


def new_server(settings: Cooling | Metered | Queue, pace: Pace, draw: Draw) -> Server:
    """Return a server of the kind that the settings have."""
    if isinstance(settings, Cooling):
        return CoolingServer(settings, pace, draw)
    if isinstance(settings, Metered):
        return MeteredServer(settings, pace, draw)
    return QueueServer(settings, pace, draw)
