"""`python -m lab`: run a published simulation, a suite or a scenario file, and compare laws."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from headgate.errors import ConfigurationError, HeadgateError, fail_if
from lab import ablation, published
from lab.plot import plot
from lab.report import findings, report, scenario_json, suite_json, suite_report
from lab.results import Result
from lab.runner import run_published, run_scenario, worker_processes
from lab.scenario import MAX_SEEDS, SUITES, is_suite, read

PUBLISHED_SEEDS, TABLE_SEEDS = 100, 3


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    made = argparse.ArgumentParser(
        prog="python -m lab",
        description="Simulate servers under load with the cores of headgate. The exit code is 1 if a value is outside "
        "its range ([[expect]] in the file), or if the control is within all.",
    )
    made.add_argument("name", nargs="?", metavar="NAME|FILE", help="a name of the list, a TOML file, or a folder")
    made.add_argument("--seeds", type=_seeds, metavar="N", help="run the seeds 0 to N-1")
    made.add_argument("--case", metavar="NAME", help="run only this scenario of a suite")
    made.add_argument(
        "--set", dest="changes", metavar="KEY=VALUE", action="append", default=[], help="set a key: loads.people.load=2"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--plot", metavar="FILE", help="draw the signals of one scenario over time, .svg or .png")
    return made


def _seeds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_SEEDS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MAX_SEEDS:,}, got {text!r}")
    return int(text)


def listing() -> str:
    """Return what there is to run."""
    lines = [f"{name:12}{simulation.description}" for name, simulation in published.SIMULATIONS.items()]
    lines += [f"{name:12}{description}" for name, (description, _) in ablation.TABLES.items()]
    for name, about in SUITES.items():
        lines.append(f"{name:12}Suite: {about}.")
        lines += [f"  {scenario.name:28}{scenario.description}" for scenario in read(name)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    given = parser().parse_args(arguments)
    try:
        if given.name is None:
            print(listing())
            return 0
        if given.name in ablation.TABLES:
            return _print_table(given)
        return _simulate(given)
    except HeadgateError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigurationError) else 1


def _print_table(given: argparse.Namespace) -> int:
    fail_if(
        given.changes or given.case or given.plot or given.json,
        f"{given.name} is a table: it has no --set, --case, --json or --plot",
    )
    with worker_processes() as workers:
        for line in ablation.TABLES[given.name][1](given.seeds or TABLE_SEEDS, workers, ablation.SECONDS):
            print(line)
    return 0


def _simulate(given: argparse.Namespace) -> int:
    results, suite = _run(given)
    if given.plot:
        plot(results[0], given.plot)
    if given.json:
        name = Path(given.name).absolute().stem
        print(json.dumps(suite_json(name, results) if suite else scenario_json(results[0])))
    else:
        whole = suite and given.case is None
        print("\n".join(suite_report(results) if whole else report(results[0])))
    unexpected = [result for result in results if not result.as_expected]
    if given.json:
        for result in unexpected:
            print("\n".join(f"lab: {result.scenario}: {line}" for line in findings(result)), file=sys.stderr)
    return 1 if unexpected else 0


def _run(given: argparse.Namespace) -> tuple[list[Result], bool]:
    """Return the results, and whether they are those of a suite."""
    if given.name in published.SIMULATIONS:
        fail_if(
            given.changes or given.case or given.plot,
            f"{given.name} is as it was published: it has no --set, --case or --plot",
        )
        with worker_processes() as workers:
            return [run_published(given.name, given.seeds or PUBLISHED_SEEDS, workers=workers)], False
    seeds = [f"seeds={given.seeds}"] if given.seeds else []
    scenarios = read(given.name, [*given.changes, *seeds], case=given.case)
    fail_if(given.plot and len(scenarios) > 1, "--plot: name one scenario of the suite with --case")
    with worker_processes() as workers:
        results = [run_scenario(one, workers=workers, record=bool(given.plot)) for one in scenarios]
    return results, is_suite(given.name)


if __name__ == "__main__":
    sys.exit(main())
