"""Faults of data planes under load: failed requests, latency, and the time until holds and limits are back.

The faults are those of the tests (`tests.e2e.plane_faults`). `python -m bench data_plane_faults` runs all of them;
`python -m bench.bench_data_plane_faults NAME …` runs those that are named. Both print the table of docs/reliability.md.
"""

import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from bench.measure import Row, verify
from tests import servers
from tests.e2e.fault_cases import Times
from tests.e2e.plane_faults import FAULTS, PLAN, PlaneOutcome, all_cases, run_fault
from tests.e2e.plane_system import PLANES

LOAD = replace(PLAN, cold_rate=200.0, probe_rate=20.0)
TIMES = Times(before=2.0, during=4.0, after=4.0)
TARGET = 1.0
"""Seconds until all holds are in force again."""
HEAD = (
    "data plane",
    "fault",
    "failed requests",
    "p99 before, ms",
    "during",
    "after",
    "held, but admitted",
    "holds back after, s",
    "limits back after, s",
)


def all_names() -> list[str]:
    """Return the names of the cases whose programs are installed: the data plane, a colon, and the fault."""
    return [f"{plane.name}: {fault}" for plane, fault in all_cases() if servers.is_present(plane.needed)]


def measure(names: Iterable[str]) -> Iterator[PlaneOutcome]:
    """Run cases, one after another."""
    for name in names:
        print(f"faults: {name} …", file=sys.stderr, flush=True)
        plane, _, fault = name.partition(": ")
        with tempfile.TemporaryDirectory(prefix="headgate-faults-") as folder:
            outcome = run_fault(PLANES[plane], FAULTS[fault], Path(folder), TIMES, LOAD)
        verify(f"there are requests before and after: {name}", right=not any(map(math.isnan, outcome.p99[::2])))
        yield outcome


def cells(outcome: PlaneOutcome) -> list[str]:
    """Return a line of the table."""
    lost = len(outcome.lost)
    return [
        outcome.plane.name,
        outcome.fault.name,
        f"{len(outcome.failed)}" + (f" (and {lost} while it did not run)" if lost else ""),
        *("" if math.isnan(seconds) else f"{seconds * 1e3:.1f}" for seconds in outcome.p99),
        f"{len(outcome.admitted)}",
        f"{outcome.held_again:.2f}",
        f"{outcome.recovery:.1f}",
    ]


def markdown(outcomes: Sequence[PlaneOutcome]) -> str:
    """Return the table."""
    lines = [HEAD, ("---", "---") + ("--:",) * (len(HEAD) - 2), *map(cells, outcomes)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(outcome: PlaneOutcome) -> Row:
    """Return the seconds until the holds were back."""
    verify(f"no request failed: {outcome.plane.name}, {outcome.fault.name}", right=not outcome.failed)
    what = f"{outcome.plane.name}, {outcome.fault.name}: seconds until all holds are in force again"
    return Row(what, "", outcome.held_again, "≤", TARGET, f"limits after {outcome.recovery:.1f} s")


def run(rounds: int) -> list[Row]:  # noqa: ARG001 - each fault is run once
    """Run all cases; return how long holds were missing, and print the table."""
    outcomes = list(measure(all_names()))
    print(markdown(outcomes))
    return [row(outcome) for outcome in outcomes]


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Run the cases whose names begin with one of NAME, all by default, and print their figures."""
    chosen = [name for name in all_names() if name.startswith(names or ("",))]
    if not chosen:
        raise click.UsageError(f"no case is named {names[0]!r}; there are: {', '.join(all_names())}")
    print(markdown(list(measure(chosen))))


if __name__ == "__main__":
    main(prog_name="python -m bench.bench_data_plane_faults")
