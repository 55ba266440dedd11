"""Random worlds in which laws for a learned concurrency limit are compared, and the simulation of one of them.

The worlds were drawn before any law was run in them. A world is one origin that serves requests in the order of their
start, behind one or four limits that know nothing of each other, each with a queue of as many requests as there are
servers for it. Arrivals, their work and their mix depend on the seed only: each law gets the same requests.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

SEED, SECONDS, STEP = 20_261_123, 240.0, 60.0
MEASURED_FROM, BIN = 20.0, 5.0
MAX_RATE = 400.0  # requests per second that a world serves at most, so that it can be simulated
MIX_SECONDS = 5.0  # mean seconds until the mix of cheap and expensive requests changes
WORK: dict[str, Callable[[random.Random], float]] = {
    "constant": lambda _: 1.0,
    "exponential": lambda draw: draw.expovariate(1.0),
    "lognormal": lambda draw: draw.lognormvariate(-0.5, 1.0),
    "bimodal": lambda draw: 5.5 if draw.random() < 0.1 else 0.5,
}


@dataclass(frozen=True)
class World:
    """One origin and its load: the work that arrives in each step, by the capacity at the start."""

    seed: int
    servers: int
    service: float
    distribution: str
    cost_ratio: float
    loads: list[float]
    changes_at: float
    factor: float
    limits: int

    def servers_at(self, now: float) -> int:
        """Return the number of servers; the capacity changes once."""
        return max(1, round(self.servers * self.factor)) if now >= self.changes_at else self.servers


def worlds(count: int = 200, seed: int = SEED) -> list[World]:
    """Draw the worlds."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        servers = round(math.exp(draw.uniform(math.log(2), math.log(200))))
        service = max(math.exp(draw.uniform(math.log(0.02), 0.0)), servers / MAX_RATE)
        number, distribution = draw.getrandbits(32), draw.choice(tuple(WORK))
        cost_ratio = draw.choice((1.0, draw.uniform(3.0, 10.0)))
        loads = [draw.uniform(0.3, 0.95) if draw.random() < 0.4 else draw.uniform(1.05, 2.5) for _ in range(4)]
        changes_at, factor = draw.uniform(0.25, 0.75) * SECONDS, draw.choice((0.5, 1.0, 2.0))
        limits = draw.choice((1, 4))
        found.append(World(number, servers, service, distribution, cost_ratio, loads, changes_at, factor, limits))
    return found


Law = Generator[float, tuple[float, int, float], None]
"""Yields a limit; takes a latency at the origin, how many requests were in flight with it, and the time."""


class Arrival(NamedTuple):
    """A request for one of the limits."""

    at: float
    work: float
    gate: int


class Result(NamedTuple):
    """The work that was answered in time, by what was possible in each five seconds; and the p99 from arrivals on."""

    goodput: float
    p99: float


def arrivals(world: World) -> list[Arrival]:
    """Return the requests of a world."""
    draw = random.Random(world.seed)
    cheap = 2.0 / (1.0 + world.cost_ratio)
    found: list[Arrival] = []
    now, share, mix_until = 0.0, 0.5, 0.0
    while True:
        now += draw.expovariate(world.loads[int(now / STEP)] * world.servers / world.service)
        if now >= SECONDS:
            return found
        if now >= mix_until:
            share, mix_until = draw.choice((0.2, 0.8)), now + draw.expovariate(1.0 / MIX_SECONDS)
        cost = cheap * (world.cost_ratio if draw.random() < share else 1.0)
        found.append(Arrival(now, world.service * cost * WORK[world.distribution](draw), draw.randrange(world.limits)))


class Run:
    """The simulation of one world under one law."""

    def __init__(self, world: World, make: Callable[[World], Law]) -> None:
        self.world = world
        self.laws = [make(world) for _ in range(world.limits)]
        self.limits = [next(law) for law in self.laws]
        self.in_flight = [0] * world.limits
        self.queues: list[deque[Arrival]] = [deque() for _ in range(world.limits)]
        self.backlog: deque[tuple[float, Arrival]] = deque()
        self.served: list[tuple[float, int, float, Arrival]] = []
        self.busy = self.number = 0
        self.latencies: list[float] = []
        self.done = 0.0

    def run(self, requests: list[Arrival]) -> Result:
        """Run it to the end."""
        size = max(4, math.ceil(self.world.servers / self.world.limits))
        offered = [0.0] * int(SECONDS / BIN)
        for request in requests:
            offered[int(request.at / BIN)] += request.work
            while self.served and self.served[0][0] <= request.at:
                self.end()
            if self.in_flight[request.gate] < self.limits[request.gate]:
                self.start(request, request.at)
            elif len(self.queues[request.gate]) < size:
                self.queues[request.gate].append(request)
        while self.served:
            self.end()
        bins = [(number * BIN, work) for number, work in enumerate(offered) if number * BIN >= MEASURED_FROM]
        possible = sum(min(work, BIN * self.world.servers_at(at)) for at, work in bins)
        return Result(self.done / possible, sorted(self.latencies)[int(0.99 * len(self.latencies))])

    def start(self, request: Arrival, now: float) -> None:
        """Start a request at the origin."""
        self.in_flight[request.gate] += 1
        self.backlog.append((now, request))
        self.serve(now)

    def serve(self, now: float) -> None:
        """Give free servers work."""
        while self.backlog and self.busy < self.world.servers_at(now):
            started, request = self.backlog.popleft()
            self.busy += 1
            self.number += 1
            heapq.heappush(self.served, (now + request.work, self.number, started, request))

    def end(self) -> None:
        """End the next request, and start one that waits."""
        now, _, started, request = heapq.heappop(self.served)
        queue, gate = self.queues[request.gate], request.gate
        self.busy -= 1
        self.limits[gate] = self.laws[gate].send((now - started, self.in_flight[gate], now))
        self.in_flight[gate] -= 1
        if request.at >= MEASURED_FROM:
            self.latencies.append(now - request.at)
            self.done += request.work if now - request.at <= max(5.0, 20.0 * self.world.service) else 0.0
        self.serve(now)
        while queue and self.in_flight[gate] < self.limits[gate]:
            self.start(queue.popleft(), now)
