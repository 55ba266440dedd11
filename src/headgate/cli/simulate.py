"""`headgate simulate`: run a scenario of the lab and compare its policies."""

import click
import msgspec

from headgate.cli.output import print_json, printable, progress
from headgate.cli.params import Parsed, whole_number
from headgate.lab.plots import check_plot_file, plot
from headgate.lab.results import Metric, Result
from headgate.lab.runner import run_scenario
from headgate.lab.scenario import MAX_AGENTS, MAX_SEEDS
from headgate.lab.scenario_file import find, read_scenario

_SEEDS = Parsed("integer", whole_number(1, MAX_SEEDS))
_AGENTS = Parsed("integer", whole_number(1, MAX_AGENTS))


@click.command()
@click.option("--seeds", type=_SEEDS, metavar="N", help="Run the seeds 0 to N-1 instead of those of the scenario.")
@click.option("--agents", type=_AGENTS, metavar="N", help="Scale the numbers of all agents to a sum of N.")
@click.option(
    "--set",
    "changes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a key of the scenario: load=2, or agents.heavy.interval=5. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--plot", "picture", metavar="FILE", help="Write a plot, .svg or .png; needs the extra lab.")
@click.argument("name", metavar="NAME|FILE")
def simulate(
    *, name: str, seeds: int | None, agents: int | None, changes: tuple[str, ...], as_json: bool, picture: str | None
) -> None:
    """Run a scenario of the lab and compare its policies."""
    if picture:
        check_plot_file(picture)
    scenario = read_scenario(find(name), changes, agents=agents)
    if seeds is not None:
        scenario = msgspec.structs.replace(scenario, seeds=seeds)
    total = len(scenario.compared) * len(scenario.seed_list)
    with progress(scenario.name, total) as advance:
        result = run_scenario(scenario, record=bool(picture), advance=advance)
    if picture:
        plot(result, picture)
    if as_json:
        print_json({"scenario": result.scenario, "seeds": result.seeds, "policies": result.policies})
    else:
        _print_table(result)


def _print_table(result: Result) -> None:
    """Print a row for each policy and a column for each metric."""
    metrics = list(next(iter(result.policies.values())))
    rows = [["policy", *metrics]]
    rows += [[printable(policy), *(_cell(of[name]) for name in metrics)] for policy, of in result.policies.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        click.echo("  ".join(cells))


def _cell(value: Metric) -> str:
    return " ".join(f"{one:.4g}" for one in value) if isinstance(value, list) else f"{value:.4g}"
