"""Compares published laws for a learned concurrency limit in the random worlds: `python -m bench.bench_limit_laws`.

Prints, for each law, means over the worlds with 95 % intervals (bootstrap over worlds), and the same for parts of them.
`p99` is divided by that of the limit `knee` in the same world, and its mean is geometric.
"""

import math
import os
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean

from bench.concurrency_laws import Aimd, AimdDefault, Envoy, Fixed, Gradient2, Knee, Vegas
from bench.concurrency_worlds import Law, Result, World, arrivals, run, worlds

LAWS: dict[str, Callable[[World], Law]] = {
    "knee": Knee,
    "fixed": Fixed,
    "gradient2": Gradient2,
    "vegas": Vegas,
    "envoy": Envoy,
    "aimd": Aimd,
    "aimd, 1 s": AimdDefault,
}
PARTS: dict[str, Callable[[World], bool]] = {
    "all": lambda _world: True,
    "2 to 9 servers": lambda world: world.servers < 10,
    "10 to 49": lambda world: 10 <= world.servers < 50,
    "50 to 200": lambda world: world.servers >= 50,
    "two costs": lambda world: world.cost_ratio > 1.0,
    "four limits": lambda world: world.limits == 4,
    "capacity halved": lambda world: world.factor == 0.5,
    "capacity doubled": lambda world: world.factor == 2.0,
}


def results(world: World) -> dict[str, Result]:
    """Run a world under each law."""
    requests = arrivals(world)
    return {name: run(world, law, requests) for name, law in LAWS.items()}


def interval(values: Sequence[float]) -> str:
    """Return the mean, and its interval of 95 %."""
    draw = random.Random(1)
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(1_000))
    return f"{fmean(values):.3f} [{means[25]:.3f}, {means[974]:.3f}]"


def ratio(values: Sequence[float]) -> str:
    """Return the geometric mean, and its interval of 95 %."""
    draw = random.Random(1)
    logs = [math.log(value) for value in values]
    means = sorted(math.exp(fmean(draw.choices(logs, k=len(logs)))) for _ in range(1_000))
    return f"{math.exp(fmean(logs)):.2f} [{means[25]:.2f}, {means[974]:.2f}]"


def main(count: int) -> None:
    """Run the first `count` worlds."""
    drawn = worlds(count)
    with ProcessPoolExecutor(1, initializer=os.nice, initargs=(10,)) as pool:
        found = list(pool.map(results, drawn))
    for part, belongs in PARTS.items():
        chosen = [result for world, result in zip(drawn, found, strict=True) if belongs(world)]
        if not chosen:
            continue
        print(f"{part} ({len(chosen)} worlds)")
        for name in LAWS:
            goodputs = [result[name].goodput for result in chosen]
            p99 = [result[name].p99 / result["knee"].p99 for result in chosen]
            print(
                f"  {name:10} goodput {interval(goodputs)}  worst 5 % {sorted(goodputs)[len(chosen) // 20]:.2f}"
                f"  p99 {ratio(p99)}  worst 5 % {sorted(p99)[-1 - len(chosen) // 20]:.1f}"
                f"  limit {ratio([result[name].limit for result in chosen])}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
