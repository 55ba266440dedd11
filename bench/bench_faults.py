"""Faults under load: failed requests, latency, time to recover, and admitted requests against the rule.

The faults are those of the tests (`tests.e2e.fault_cases`). `python -m bench faults` runs all of them and compares the
99th percentile during each fault with the one before it; `python -m bench.bench_faults NAME …` runs those that are
named. Both print the table of docs/reliability.md.
"""

import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import click

from bench.measure import Absent, Row, verify
from tests import servers
from tests.e2e import fault_namespace
from tests.e2e.fault_cases import FAULTS, PARTS, Outcome, Times, run_fault, run_restarts
from tests.e2e.fault_figures import failed, wrongly_rejected
from tests.e2e.fault_load import LoadPlan

PLAN = LoadPlan(cold_rate=300.0, cold_identifiers=1000, probe_rate=20.0)
TIMES = Times(before=2.5, during=4.0, after=1.0)
LONG = 30.0
"""Seconds that a partition lasts."""
TARGET = 1.5
ADDED_TARGET = 1.0
"""Milliseconds that a fault of the store may add."""
HEAD = (
    "fault",
    "failed requests",
    "p99 before, ms",
    "during",
    "after",
    "limits back after, s",
    "offered",
    "allowed",
    "over",
    "under",
)


def measure(names: Iterable[str]) -> Iterator[Outcome]:
    """Run faults, one after another."""
    for name in names:
        print(f"faults: {name} …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="headgate-faults-") as folder:
            outcome = measure_one(name, Path(folder))
        verify(f"there are requests before, during and after: {name}", right=not any(map(math.isnan, outcome.p99)))
        yield outcome


def measure_one(name: str, folder: Path) -> Outcome:
    """Run a fault, for longer than `TIMES` says if its figures need it."""
    if name == fault_namespace.NAME:
        return fault_namespace.run_dropped(folder, replace(TIMES, during=LONG), PLAN)
    fault = FAULTS[name]
    missing = sorted(program for program in fault.needs if not servers.is_present(program))
    if missing:
        raise Absent(f"{', '.join(missing)} missing")
    return run_fault(fault, folder, replace(TIMES, during=max(TIMES.during, fault.least_seconds)), PLAN)


def all_names() -> list[str]:
    """Return the names of the faults that this user can cause."""
    return [*FAULTS, *([fault_namespace.NAME] if fault_namespace.is_permitted() else [])]


def restarts() -> str:
    """Restart all parts in every order; return what happened to the requests."""
    orders = list(permutations(PARTS))
    print("faults: restarts …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="headgate-faults-") as folder:
        samples = run_restarts(Path(folder), orders)
    kept = [sample for sample in samples if sample.gate == 0]
    lost = [sample for sample in samples if sample.gate != 0]
    return (
        f"Restarts of {', '.join(PARTS)} in {len(orders)} orders: {len(samples)} requests; "
        f"{len(failed(kept))} failed at the gate that was not restarted, {len(failed(lost))} at the other; "
        f"{len(wrongly_rejected(samples))} wrongly rejected. After each order a burst was admitted exactly."
    )


def cells(outcome: Outcome) -> list[str]:
    """Return a line of the table."""
    before, during, after = (f"{seconds * 1e3:.1f}" for seconds in outcome.p99)
    admission = outcome.admission
    lost = len(failed(outcome.lost))
    return [
        outcome.fault.name,
        f"{len(outcome.failed)}" + (f" (and {lost} at the lost gate)" if lost else ""),
        *(before, during, after),
        f"{outcome.recovery:.1f}",
        *map(str, (admission.offered, admission.allowed, admission.over, admission.under)),
    ]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """Return the table."""
    lines = [HEAD, ("---",) + ("--:",) * (len(HEAD) - 1), *map(cells, outcomes)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(outcome: Outcome) -> Row:
    """Return the ratio of the latency; of faults of the store, the added milliseconds."""
    before, during, after = (seconds * 1e3 for seconds in outcome.p99)
    context = f"p99 {before:.1f}, {during:.1f}, {after:.1f} ms; {len(outcome.failed)} failed"
    name = outcome.fault.name
    if "redis-server" in outcome.fault.needs:
        return Row(f"added p99 in ms: {name}", "before", during - before, "≤", ADDED_TARGET, context)
    return Row(f"p99: {name}", "before", during / before, "≤", TARGET, context)


def run(rounds: int) -> list[Row]:  # noqa: ARG001 - each fault is run once
    """Run all faults; return what they did to the latency, and print the table."""
    outcomes = list(measure(all_names()))
    print(f"{markdown(outcomes)}\n\n{restarts()}")
    return [row(outcome) for outcome in outcomes]


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Run the faults whose names begin with one of NAME, all by default, and print their figures.

    The name `restarts` runs the restarts in every order.
    """
    chosen = [name for name in all_names() if name.startswith(names or ("",))]
    if not chosen and "restarts" not in names:
        raise click.UsageError(f"no fault is named {names[0]!r}; there are: {', '.join(all_names())}, restarts")
    if chosen:
        print(markdown(list(measure(chosen))))
    if not names or "restarts" in names:
        print(f"\n{restarts()}")


if __name__ == "__main__":
    main(prog_name="python -m bench.bench_faults")
