"""Compares published laws for a learned concurrency limit in random worlds: `python -m bench.concurrency_laws`.

Prints means over the worlds with 95 % intervals; `p99` is divided by that of the limit `knee` in the same world.
Sources: Gradient2 and Vegas: Netflix/concurrency-limits (with its windows of a second and of ten requests, means, and
the tolerance of 1.5 of its releases); Envoy: the documentation of its adaptive concurrency filter; AIMD: the product.
"""

import math
import random
import sys
from collections.abc import Callable, Generator, Sequence
from functools import partial
from statistics import fmean, median

from bench.concurrency_worlds import Law, Result, Run, World, arrivals, worlds
from headgate.limit.concurrency.aimd import AimdLimit

FIRST, MAX = 20.0, 1_000.0


def knee(world: World, *, follows: bool = True) -> Law:
    """The servers there are for each limit: now, or at the start, as an operator would set it."""
    now = 0.0
    while True:
        _, _, now = yield float(math.ceil(world.servers_at(now if follows else 0.0) / world.limits))


def window(limit: float, due: float) -> Generator[float, tuple[float, int, float], tuple[float, int, float]]:
    """Return the mean latency and the most in flight of a second and ten requests, and when the next window is due."""
    latencies, most = [], 0
    while True:
        latency, in_flight, now = yield limit
        latencies.append(latency)
        most = max(most, in_flight)
        if now >= due and len(latencies) >= 10:
            return fmean(latencies), most, now + 1.0


def gradient2(_world: World) -> Law:
    """Multiply by the ratio of a long-term mean latency and that of the window, and add four."""
    limit, long, windows, due = FIRST, 0.0, 0, 0.0
    while True:
        latency, in_flight, due = yield from window(limit, due)
        windows += 1
        long += (latency - long) * (1.0 / windows if windows <= 10 else 2.0 / 601.0)
        if long > 2.0 * latency:
            long *= 0.95
        if in_flight >= limit / 2.0:
            gradient = max(0.5, min(1.0, 1.5 * long / latency))
            limit = max(1.0, min(MAX, 0.8 * limit + 0.2 * (gradient * limit + 4.0)))


def vegas(world: World) -> Law:
    """Keep the queue at the origin, the limit times the share of waiting in latency, between two bounds."""
    draw = random.Random(world.seed)
    limit, least, windows, jitter, due = FIRST, 0.0, 0, 1.0, 0.0
    while True:
        latency, in_flight, due = yield from window(limit, due)
        windows += 1
        if windows >= jitter * 30.0 * limit:
            jitter, windows, least = draw.uniform(0.5, 1.0), 0, latency
        elif not least or latency < least:
            least = latency
        elif in_flight * 2 >= limit:
            queue, step = math.ceil(limit * (1.0 - least / latency)), max(1.0, math.log10(limit))
            if queue < 3.0 * step:
                limit += 6.0 * step if queue <= step else step
            elif queue > 6.0 * step:
                limit -= step
            limit = max(1.0, min(MAX, limit))


def aimd(world: World, times: float = 2.0, target: float = 0.0) -> Law:
    """The law of the product; its target is a multiple of the mean service time of the world, or the given one."""
    law = AimdLimit(target or times * world.service, int(MAX))
    while True:
        latency, in_flight, _ = yield law.limit
        law.responded(latency, in_flight)


def envoy(world: World) -> Law:
    """Multiply by the ratio of a least latency, measured each minute with three in flight, and a median of 0.1 s."""
    draw, limit, began, now = random.Random(world.seed), FIRST, 0.0, 0.0
    while True:
        samples: list[float] = []
        while len(samples) < 50:
            latency, _, now = yield 3.0
            samples += [latency] if now - latency >= began else []
        least, at_least, samples = 1.25 * median(samples), 0, []
        due, measure_at = now + 0.1, now + 60.0 * draw.uniform(1.0, 1.1)
        while now < measure_at and at_least < 5:
            latency, _, now = yield limit
            samples.append(latency)
            if now >= due:
                gradient = max(0.5, min(2.0, least / median(samples)))
                limit = max(3.0, min(MAX, gradient * limit + math.sqrt(gradient * limit)))
                due, samples, at_least = now + 0.1, [], at_least + 1 if limit == 3.0 else 0
        began = now


LAWS: dict[str, Callable[[World], Law]] = {
    "knee": knee, "fixed": partial(knee, follows=False), "gradient2": gradient2, "vegas": vegas, "envoy": envoy,
    "aimd": aimd, "aimd, 1 x": partial(aimd, times=1.0), "aimd, 4 x": partial(aimd, times=4.0),
    "aimd, 1 s": partial(aimd, target=1.0),
}  # fmt: skip
PARTS: dict[str, Callable[[World], bool]] = {
    "all": lambda _: True,
    "2 to 9 servers": lambda world: world.servers < 10,
    "50 to 200": lambda world: world.servers >= 50,
    "two costs": lambda world: world.cost_ratio > 1.0,
    "four limits": lambda world: world.limits == 4,
    "capacity halved": lambda world: world.factor == 0.5,
    "capacity doubled": lambda world: world.factor == 2.0,
}


def interval(values: Sequence[float]) -> list[float]:
    """Return the mean, and its interval of 95 % (bootstrap)."""
    draw = random.Random(1)
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(1_000))
    return [fmean(values), means[25], means[974]]


def main(count: int) -> None:
    """Run the first `count` worlds, and print all of them and their parts; the mean of p99 is geometric."""
    found: list[tuple[World, dict[str, Result]]] = []
    for world in worlds(count):
        requests = arrivals(world)
        found.append((world, {name: Run(world, law).run(requests) for name, law in LAWS.items()}))
    for part, belongs in PARTS.items():
        chosen = [results for world, results in found if belongs(world)]
        for name in LAWS if chosen else ():
            goodputs = sorted(results[name].goodput for results in chosen)
            ratios = sorted(math.log(results[name].p99 / results["knee"].p99) for results in chosen)
            figures = [*interval(goodputs), goodputs[len(chosen) // 20]]
            figures += map(math.exp, [*interval(ratios), ratios[-1 - len(chosen) // 20]])
            row = "goodput {:.3f} [{:.3f}, {:.3f}], worst 5 % {:.2f}; p99 {:.2f} [{:.2f}, {:.2f}], worst 5 % {:.1f}"
            print(f"{part} ({len(chosen)}): {name:10}", row.format(*figures))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
