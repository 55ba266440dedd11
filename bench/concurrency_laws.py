"""Published laws for a learned concurrency limit, with the constants of their sources, and two limits that know more.

Sources: Gradient2 and Vegas: Netflix/concurrency-limits (with its windows of a second and of ten requests, means, and
the tolerance of 1.5 of its releases); the gradient controller: the documentation of Envoy's adaptive concurrency
filter. They begin with 20 and stay between 1 and 1,000; Envoy's least limit is 3. The AIMD is the one of the product,
and begins with 4.
"""

# ruff: noqa: ARG002 - each law takes the same arguments, and looks at some of them

import math
import random
from statistics import median

from bench.concurrency_worlds import World
from headgate.limit.concurrency import ConcurrencySettings
from headgate.limit.concurrency.aimd import AimdLimit

FIRST, MAX = 20.0, 1_000.0


class Fixed:
    """The servers there are at the start for each limit, as an operator would set it."""

    def __init__(self, world: World) -> None:
        self.limit = float(math.ceil(world.servers / world.limits))

    def ended(self, latency: float, in_flight: int, *, now: float) -> None:
        """Stay."""


class Knee(Fixed):
    """The servers there are now for each limit."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._world = world

    def ended(self, latency: float, in_flight: int, *, now: float) -> None:
        """Look at the world."""
        self.limit = float(math.ceil(self._world.servers_at(now) / self._world.limits))


class Windowed:
    """A law that looks at windows of at least a second and ten requests."""

    def __init__(self, world: World) -> None:
        self.limit = FIRST
        self._due = 0.0
        self._count = self._most = 0
        self._sum = 0.0

    def ended(self, latency: float, in_flight: int, *, now: float) -> None:
        """Add a request to the window."""
        self._count += 1
        self._sum += latency
        self._most = max(self._most, in_flight)
        if now >= self._due and self._count >= 10:
            self.window(self._sum / self._count, self._most)
            self._due, self._count, self._most, self._sum = now + 1.0, 0, 0, 0.0

    def window(self, latency: float, in_flight: int) -> None:
        """Take the mean latency and the greatest number in flight of a window."""
        raise NotImplementedError


class Gradient2(Windowed):
    """Multiplies by the ratio of a long-term mean latency and that of the window, and adds four."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._long = self._windows = 0.0

    def window(self, latency: float, in_flight: int) -> None:
        """Change the limit."""
        self._windows += 1.0
        weight = 1.0 / self._windows if self._windows <= 10.0 else 2.0 / 601.0
        self._long += (latency - self._long) * weight
        if self._long > 2.0 * latency:
            self._long *= 0.95
        if in_flight >= self.limit / 2.0:
            gradient = max(0.5, min(1.0, 1.5 * self._long / latency))
            self.limit = max(1.0, min(MAX, 0.8 * self.limit + 0.2 * (gradient * self.limit + 4.0)))


class Vegas(Windowed):
    """Keeps the queue at the origin, the limit times the share of waiting in latency, between two bounds."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._random = random.Random(world.seed)
        self._least = self._windows = 0.0
        self._jitter = 1.0

    def window(self, latency: float, in_flight: int) -> None:
        """Change the limit."""
        self._windows += 1.0
        if self._windows >= self._jitter * 30.0 * self.limit:
            self._jitter, self._windows, self._least = self._random.uniform(0.5, 1.0), 0.0, latency
        elif not self._least or latency < self._least:
            self._least = latency
        elif in_flight * 2 >= self.limit:
            queue = math.ceil(self.limit * (1.0 - self._least / latency))
            step = max(1.0, math.log10(self.limit))
            if queue <= step:
                self.limit += 6.0 * step
            elif queue < 3.0 * step:
                self.limit += step
            elif queue > 6.0 * step:
                self.limit -= step
            self.limit = max(1.0, min(MAX, self.limit))


class Aimd:
    """The law of `headgate.limit.concurrency`, told a target: twice the mean service time of the world."""

    def __init__(self, world: World) -> None:
        self._law = AimdLimit(self._target(world), int(MAX))
        self.limit = self._law.limit

    def ended(self, latency: float, in_flight: int, *, now: float) -> None:
        """Pass it on."""
        self._law.responded(latency, in_flight)
        self.limit = self._law.limit

    def _target(self, world: World) -> float:
        return 2.0 * world.service


class AimdDefault(Aimd):
    """The same with the default target."""

    def _target(self, world: World) -> float:
        return ConcurrencySettings().healthy_latency


class Envoy:
    """Multiplies by the ratio of a least latency, measured each minute with three in flight, and a median of 0.1 s."""

    def __init__(self, world: World) -> None:
        self._random = random.Random(world.seed)
        self.limit = 3.0
        self._next = FIRST  # the limit after the measurement
        self._least = 0.0
        self._measures_from = 0.0  # infinite while it does not measure
        self._measure_at = math.inf
        self._due = 0.0
        self._at_least = 0
        self._samples: list[float] = []

    def ended(self, latency: float, in_flight: int, *, now: float) -> None:
        """Add a request to the measurement or the window."""
        if self._measures_from < math.inf:
            if now - latency >= self._measures_from:
                self._samples.append(latency)
            if len(self._samples) >= 50:
                self._least, self._samples = 1.25 * median(self._samples), []
                self.limit, self._measures_from, self._due = self._next, math.inf, now + 0.1
                self._measure_at = now + 60.0 * self._random.uniform(1.0, 1.1)
            return
        self._samples.append(latency)
        if now < self._due:
            return
        gradient = max(0.5, min(2.0, self._least / median(self._samples)))
        self._due, self._samples = now + 0.1, []
        self.limit = max(3.0, min(MAX, gradient * self.limit + math.sqrt(gradient * self.limit)))
        self._at_least = self._at_least + 1 if self.limit == 3.0 else 0
        if now >= self._measure_at or self._at_least >= 5:
            self._next, self.limit, self._measures_from, self._at_least = self.limit, 3.0, now, 0
