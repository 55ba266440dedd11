"""Run the benchmarks and print their ratios: `python -m bench [NAME …] [--rounds N]`."""

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

import bench
from bench.measure import Absent, Row, Void

PREFIX = "bench_"


def names() -> list[str]:
    """Return the benchmarks there are, without the prefix of their modules."""
    modules = [module.name for module in pkgutil.iter_modules(bench.__path__)]
    return [name.removeprefix(PREFIX) for name in modules if name.startswith(PREFIX)]


def table(rows: Sequence[Row]) -> Table:
    """Lay the rows out for a person."""
    lines = Table("what", "peer", "ratio", "to reach", "reached", "absolute")
    for row in rows:
        reached = "yes" if row.reached else "no"
        lines.add_row(row.what, row.peer, f"{row.ratio:.2f}", f"{row.bound} {row.target:g}", reached, row.context)
    return lines


@click.command()
@click.argument("chosen", metavar="[NAME]...", nargs=-1)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(min=1), help="How often each side runs.")
def main(chosen: tuple[str, ...], rounds: int) -> None:
    """Measure headgate against its peers; without a NAME, everything. Exits with 1 when a result was void."""
    unknown = set(chosen) - set(names())
    if unknown:
        raise click.UsageError(f"no benchmark is named {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    rows: list[Row] = []
    is_void = False
    for name in chosen or names():
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            rows += importlib.import_module(f"bench.{PREFIX}{name}").run(rounds)
        except (Absent, ImportError) as absent:
            print(f"{name}: not measured: {absent}", file=sys.stderr)
        except Void as void:
            is_void = True
            print(f"{name}: void: {void}", file=sys.stderr)
    Console(width=None if sys.stdout.isatty() else 200).print(table(rows))
    sys.exit(1 if is_void else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench")
