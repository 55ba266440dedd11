"""Random worlds in which laws for a learned concurrency limit are compared, and the simulation of one of them.

The worlds were drawn before any law was run in them: `SEED` and `worlds` are not to be changed after a comparison. A
world is one origin that serves requests in the order of their start, with as many servers as it has, and one or four
limits in front of it that know nothing of each other. Each limit has a queue of as many requests as there are servers
for it. Arrivals, their work and their mix depend on the seed only, so each law gets the same requests.

Goodput is the work that was answered within the patience of clients, divided by the work that could have been: in each
five seconds the lesser of what arrived and what the servers can do. Latencies are those of the answered requests, from
their arrival on, including the queue.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

SEED = 20_261_123
WORLDS = 200
SECONDS = 240.0
STEP = 60.0
"""Seconds of a load, after which another one begins."""
MEASURED_FROM = 20.0
"""Seconds at the start that are not measured."""
MAX_RATE = 400.0
"""Requests per second that a world serves at most, so that it can be simulated; it bounds the service time below."""
MIX_SECONDS = 5.0
"""Mean seconds until the mix of cheap and expensive requests changes."""
_BIN = 5.0


@dataclass(frozen=True)
class World:
    """One origin and its load."""

    seed: int
    servers: int
    service: float
    """Mean seconds of work of a request."""
    distribution: str
    """Of the work of a class: constant, exponential, lognormal or bimodal."""
    cost_ratio: float
    """How often the work of a cheap request an expensive one needs; 1 for one class."""
    loads: tuple[float, ...]
    """Arriving work by the capacity at the start, for each step."""
    changes_at: float
    """When the capacity changes."""
    factor: float
    """By what: 0.5, 1 or 2."""
    limits: int

    def servers_at(self, now: float) -> int:
        """Return the number of servers."""
        return max(1, round(self.servers * self.factor)) if now >= self.changes_at else self.servers


def worlds(count: int = WORLDS) -> list[World]:
    """Draw the worlds."""
    draw = random.Random(SEED)
    return [_world(draw) for _ in range(count)]


def _world(draw: random.Random) -> World:
    servers = round(math.exp(draw.uniform(math.log(2), math.log(200))))
    service = math.exp(draw.uniform(math.log(0.02), 0.0))
    return World(
        seed=draw.getrandbits(32),
        servers=servers,
        service=max(service, servers / MAX_RATE),
        distribution=draw.choice(("constant", "exponential", "lognormal", "bimodal")),
        cost_ratio=draw.choice((1.0, draw.uniform(3.0, 10.0))),
        loads=tuple(_load(draw) for _ in range(int(SECONDS / STEP))),
        changes_at=draw.uniform(0.25, 0.75) * SECONDS,
        factor=draw.choice((0.5, 1.0, 2.0)),
        limits=draw.choice((1, 4)),
    )


def _load(draw: random.Random) -> float:
    return draw.uniform(0.3, 0.95) if draw.random() < 0.4 else draw.uniform(1.05, 2.5)


class Law(Protocol):
    """What sets a limit."""

    limit: float

    def ended(self, latency: float, in_flight: int, *, now: float) -> object:
        """Take the end of a request that was at the origin for `latency`; `in_flight` counts it, too."""


class Arrival(NamedTuple):
    """A request."""

    at: float
    work: float
    gate: int


class Result(NamedTuple):
    """What came of a run."""

    goodput: float
    p50: float
    p99: float
    limit: float
    """The mean sum of all limits when requests end, by the servers of that moment."""


def arrivals(world: World) -> list[Arrival]:
    """Return the requests of a world."""
    draw = random.Random(world.seed)
    cheap = 2.0 / (1.0 + world.cost_ratio)
    found: list[Arrival] = []
    now, share, mix_until = 0.0, 0.5, 0.0
    while True:
        load = world.loads[min(int(now / STEP), len(world.loads) - 1)]
        now += draw.expovariate(load * world.servers / world.service)
        if now >= SECONDS:
            return found
        if now >= mix_until:
            share, mix_until = draw.choice((0.2, 0.8)), now + draw.expovariate(1.0 / MIX_SECONDS)
        factor = cheap * (world.cost_ratio if draw.random() < share else 1.0)
        work = world.service * factor * _work(world.distribution, draw)
        found.append(Arrival(now, work, draw.randrange(world.limits)))


def _work(distribution: str, draw: random.Random) -> float:
    if distribution == "exponential":
        return draw.expovariate(1.0)
    if distribution == "lognormal":
        return draw.lognormvariate(-0.5, 1.0)
    if distribution == "bimodal":
        return 5.5 if draw.random() < 0.1 else 0.5
    return 1.0


class _Gate:
    """A limit with its queue."""

    def __init__(self, law: Law, size: int) -> None:
        self.law = law
        self.size = size
        self.in_flight = 0
        self.waiting: deque[Arrival] = deque()


class _Run:
    """The simulation of one world under one law."""

    def __init__(self, world: World, make: Callable[[World], Law]) -> None:
        self.world = world
        size = max(4, math.ceil(world.servers / world.limits))
        self.gates = [_Gate(make(world), size) for _ in range(world.limits)]
        self.busy = 0
        self.backlog: deque[tuple[float, Arrival]] = deque()
        self.served: list[tuple[float, int, float, Arrival]] = []
        self.number = 0
        self.patience = max(5.0, 20.0 * world.service)
        self.latencies: list[float] = []
        self.done = self.limit = 0.0
        self.ends = 0

    def arrive(self, request: Arrival) -> None:
        gate = self.gates[request.gate]
        if gate.in_flight < gate.law.limit:
            self.start(gate, request, request.at)
        elif len(gate.waiting) < gate.size:
            gate.waiting.append(request)

    def start(self, gate: _Gate, request: Arrival, now: float) -> None:
        gate.in_flight += 1
        self.backlog.append((now, request))
        self.serve(now)

    def serve(self, now: float) -> None:
        servers = self.world.servers_at(now)
        while self.backlog and self.busy < servers:
            started, request = self.backlog.popleft()
            self.busy += 1
            self.number += 1
            heapq.heappush(self.served, (now + request.work, self.number, started, request))

    def end(self) -> None:
        now, _, started, request = heapq.heappop(self.served)
        gate = self.gates[request.gate]
        self.busy -= 1
        gate.law.ended(now - started, gate.in_flight, now=now)
        gate.in_flight -= 1
        if request.at >= MEASURED_FROM:
            self.latencies.append(now - request.at)
            self.done += request.work if now - request.at <= self.patience else 0.0
            self.limit += sum(one.law.limit for one in self.gates) / self.world.servers_at(now)
            self.ends += 1
        self.serve(now)
        while gate.waiting and gate.in_flight < gate.law.limit:
            self.start(gate, gate.waiting.popleft(), now)


def run(world: World, make: Callable[[World], Law], requests: list[Arrival]) -> Result:
    """Run a world with a law for each of its limits."""
    simulation = _Run(world, make)
    for request in requests:
        while simulation.served and simulation.served[0][0] <= request.at:
            simulation.end()
        simulation.arrive(request)
    while simulation.served:
        simulation.end()
    latencies = sorted(simulation.latencies)
    offered = [0.0] * int(SECONDS / _BIN)
    for request in requests:
        offered[int(request.at / _BIN)] += request.work
    possible = sum(
        min(work, _BIN * world.servers_at(number * _BIN))
        for number, work in enumerate(offered)
        if number * _BIN >= MEASURED_FROM
    )
    middle, high = len(latencies) // 2, int(0.99 * len(latencies))
    limit = simulation.limit / max(1, simulation.ends)
    return Result(simulation.done / possible, latencies[middle], latencies[high], limit)
