"""`headgate simulate`: run a scenario of the lab, or a suite of them, and compare policies."""

from collections.abc import Sequence
from typing import Any

import click

from headgate.cli.output import exit_with_failure, print_json, printable, progress
from headgate.cli.params import Parsed, whole_number
from headgate.cli.simulation_report import failures, report, suite_report
from headgate.errors import ConfigurationError
from headgate.lab.plots import check_plot_file, plot
from headgate.lab.processes import MAX_PROCESSES, available_processors
from headgate.lab.results import Result
from headgate.lab.runner import count_agents, run_scenario, uses_kernel
from headgate.lab.scenario import MAX_AGENTS, MAX_SEEDS, Scenario
from headgate.lab.scenario_file import case_files, descriptions, find, is_suite, read_scenario

_SEEDS = Parsed("integer", whole_number(1, MAX_SEEDS))
_AGENTS = Parsed("integer", whole_number(1, MAX_AGENTS))
_PROCESSES = Parsed("integer", whole_number(1, MAX_PROCESSES))


class _Command(click.Command):
    """Lists the scenarios of the package at the end of its help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """Write the name and description of each scenario and suite."""
        with formatter.section("Scenarios and suites"):
            formatter.write_dl(list(descriptions().items()))


@click.command(cls=_Command)
@click.option("--seeds", type=_SEEDS, metavar="N", help="Run the seeds 0 to N-1 instead of those of the scenario.")
@click.option("--agents", type=_AGENTS, metavar="N", help="Scale the numbers of all agents to a sum of N.")
@click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a key of the scenario: load=2, or agents.heavy.interval=5 in the table named heavy. Repeatable.",
)
@click.option("--case", metavar="NAME", help="Run only this scenario of a suite.")
@click.option("--processes", type=_PROCESSES, metavar="N", help="Processes; by default one for each processor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--plot", "picture", metavar="FILE", help="Write a plot, .svg or .png; needs the extra lab.")
@click.argument("name", metavar="NAME|FILE")
def simulate(
    *,
    name: str,
    seeds: int | None,
    agents: int | None,
    changes: tuple[str, ...],
    case: str | None,
    processes: int | None,
    as_json: bool,
    picture: str | None,
) -> None:
    """Run a scenario of the lab, and compare its policies.

    The real throttle, traffic advice, gatekeeper and master run in simulated time, among simulated agents and servers.
    NAME is a scenario or suite of those below. FILE is a TOML file of your own, or a folder of them as a suite; its
    name contains a / or ends in .toml. The same scenario and seeds always give the same output.

    \b
    Examples:
      headgate simulate attack
      headgate simulate tournament --set load=4 --seeds 3 --plot tournament.svg
      headgate simulate attack --set 'policies=["none", "mine.py:Mine"]'
      headgate simulate ./mine.toml --json

    The exit code is 1 if a value is outside its range ([[expect]] in the file), or if the control is within all.
    """
    path = find(name)
    suite = is_suite(path)
    _check_use(suite=suite, case=case, picture=picture)
    paths = case_files(path, case) if suite else [path]
    scenarios = [read_scenario(one, changes, agents=agents, seeds=seeds) for one in paths]
    stem = path.absolute().stem  # of "./", too
    results = _run(scenarios, stem, processes=processes or available_processors(), record=bool(picture))
    for scenario in filter(uses_kernel, scenarios):
        name, count = printable(scenario.name), count_agents(scenario)
        click.echo(f"headgate: {name}: {count:,} agents were simulated in compiled arrays", err=True)
    if picture:
        plot(results[0], picture, scenarios[0])
    if as_json:
        print_json(_suite_json(stem, results) if suite else _json(results[0]))
        for sentence in failures(results):
            click.echo(f"headgate: {sentence}", err=True)
    else:
        whole_suite = suite and case is None
        lines = suite_report(scenarios, results) if whole_suite else report(scenarios[0], results[0])
        for line in lines:
            click.echo(line)
    if not all(result.as_expected for result in results):
        exit_with_failure()


def _check_use(*, suite: bool, case: str | None, picture: str | None) -> None:
    if case is not None and not suite:
        raise ConfigurationError("--case: this is one scenario, not a suite; leave --case out")
    if picture:
        if suite and case is None:
            raise ConfigurationError("--plot: a suite has no plot; name one of its scenarios with --case")
        check_plot_file(picture)


def _run(scenarios: Sequence[Scenario], name: str, *, processes: int, record: bool) -> list[Result]:
    total = sum(len(scenario.compared) * len(scenario.seed_list) for scenario in scenarios)
    with progress(printable(name), total) as advance:
        return [run_scenario(one, processes=processes, record=record, advance=advance) for one in scenarios]


def _json(result: Result) -> dict[str, Any]:
    return {"scenario": result.scenario, "seeds": result.seeds, "policies": result.policies}


def _suite_json(name: str, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "scenario": name,
        "cases": [
            {
                "name": result.scenario,
                "law": law,
                "control": law == result.control,
                "metrics": metrics,
                "within": result.within(law),
            }
            for result in results
            for law, metrics in result.policies.items()
        ],
    }
