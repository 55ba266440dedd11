"""Faults under load: failed requests, latency, time to recover, and admitted requests against the rule.

The faults are those of the tests (`tests.e2e.fault_cases`). `python -m bench faults` runs all of them and compares the
99th percentile during each fault with the one before it; `python -m bench.bench_faults NAME …` runs those that are
named, for as long as its options say. Both print the table of docs/reliability.md.
"""

import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from bench.measure import Absent, Row, verify
from tests import servers
from tests.e2e.fault_cases import FAULTS, Fault, Outcome, Times, run_fault
from tests.e2e.fault_figures import failed
from tests.e2e.fault_load import LoadPlan

PLAN = LoadPlan(cold_rate=300.0, cold_identifiers=1000, probe_rate=20.0)
TIMES = Times(before=4.0, during=4.0, after=3.0)
TARGET = 1.5
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


def measure(names: Iterable[str], times: Times) -> Iterator[Outcome]:
    """Run faults, one after another."""
    for name in names:
        fault = FAULTS[name]
        missing = sorted(program for program in fault.needs if not servers.is_present(program))
        if missing:
            raise Absent(f"{', '.join(missing)} missing")
        with tempfile.TemporaryDirectory(prefix="headgate-faults-") as folder:
            outcome = run_fault(fault, Path(folder), duration(fault, times), PLAN)
        verify(f"there are requests before, during and after: {name}", right=not any(map(math.isnan, outcome.p99)))
        yield outcome


def duration(fault: Fault, times: Times) -> Times:
    """Return the times of a fault: some need longer."""
    return Times(times.before, max(times.during, fault.least_seconds), times.after)


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


def run(rounds: int) -> list[Row]:  # noqa: ARG001 - each fault is run once
    """Run all faults; return the ratios of the latency, and print the table."""
    outcomes = list(measure(FAULTS, TIMES))
    print(markdown(outcomes))
    rows = []
    for outcome in outcomes:
        before, during, after = outcome.p99
        context = f"p99 {before * 1e3:.1f}, {during * 1e3:.1f}, {after * 1e3:.1f} ms; {len(outcome.failed)} failed"
        rows.append(Row(f"p99 with {outcome.fault.name}", "before the fault", during / before, "≤", TARGET, context))
    return rows


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--before", default=TIMES.before, show_default=True, help="Seconds of load before each fault.")
@click.option("--during", default=TIMES.during, show_default=True, help="Seconds that each fault lasts, at least.")
@click.option("--after", default=TIMES.after, show_default=True, help="Seconds of load once limits are back.")
def main(names: tuple[str, ...], before: float, during: float, after: float) -> None:
    """Run the faults whose names begin with one of NAME, all by default, and print their figures."""
    chosen = [name for name in FAULTS if name.startswith(names or ("",))]
    if not chosen:
        raise click.UsageError(f"no fault is named {names[0]!r}; there are: {', '.join(FAULTS)}")
    print(markdown(list(measure(chosen, Times(before, during, after)))))


if __name__ == "__main__":
    main(prog_name="python -m bench.bench_faults")
