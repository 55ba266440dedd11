"""Fuzz one parser: ``python -m tests.fuzz.run TARGET [libFuzzer options]``, until stopped; see `targets.TARGETS`.

Where atheris is not installed, a simple loop mutates the seeds, and knows -max_total_time, -runs, -seed and
-artifact_prefix. An input that is a finding is written to the current folder, or with that prefix.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

try:
    import atheris
except ImportError:
    from tests.fuzz.targets import TARGETS, Target, mutate
else:
    with atheris.instrument_imports(include=["headgate"]):
        from tests.fuzz.targets import TARGETS, Target, mutate

LONGEST = 4096


def run_atheris(name: str, target: Target, options: list[str]) -> None:
    """Run libFuzzer, which ends the process."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as corpus:
        for number, seed in enumerate(target.seeds):
            if len(seed) <= LONGEST:
                Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup(["fuzz", *options, f"-max_len={LONGEST}", corpus], target.run)
        atheris.Fuzz()


def run_loop(target: Target, options: list[str]) -> None:
    """Mutate the seeds, and inputs that were mutated before."""
    given = dict(option[1:].split("=", 1) for option in options)
    draw, end = random.Random(given.get("seed")), time.monotonic() + float(given.get("max_total_time", "inf"))
    seeds = [seed for seed in target.seeds if len(seed) <= LONGEST]
    runs, pool, most = 0, list(seeds), float(given.get("runs", "inf"))
    while runs < most and time.monotonic() < end:
        content = mutate(draw.choice(pool), draw, seeds)[:LONGEST]
        try:
            target.run(content)
        except BaseException:
            Path(given.get("artifact_prefix", "") + f"crash-{runs}").write_bytes(content)
            raise
        runs += 1
        if draw.random() < 0.02:
            pool = [*pool[-255:], content]
    print(f"Done {runs} runs", file=sys.stderr)


def main(name: str, *options: str) -> None:
    """Fuzz the target of this name."""
    if "atheris" in sys.modules and "-loop" not in options:
        run_atheris(name, TARGETS[name], list(options))
    else:
        run_loop(TARGETS[name], [option for option in options if option != "-loop"])


if __name__ == "__main__":
    main(*sys.argv[1:])
