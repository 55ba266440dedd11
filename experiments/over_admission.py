"""How many requests gatekeepers admit beyond the rule, by control delay, number of gatekeepers and algorithm.

``python -m experiments.over_admission`` prints the published case and the curves, simulated beside the formula;
``--plot`` draws the curves for docs/scaling.md. What was measured with real sockets is read from a file that
``python -m experiments.delayed_bus`` writes.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import click
import msgspec

from experiments.bus_simulation import Arrival, evenly, permitted, randomly, simulate
from experiments.excess_bounds import steady_excess
from headgate.lab.events.bus import BusSettings, Local
from headgate.limit import Rule
from headgate.limit.history import AlgorithmName

MEASURED = Path(__file__).with_name("over_admission_measured.json")
ALGORITHMS: tuple[AlgorithmName, ...] = ("gcra", "smockron", "log")
BATCH_DELAY = 0.005
"""Seconds; what a gatekeeper's link waits for more verdicts."""


Source = Literal["formula", "even", "random", "measured"]


class Case(msgspec.Struct, frozen=True):
    """A rule, and the load offered to it."""

    rule: str
    rate: float
    """Requests per second offered to each gatekeeper."""
    seconds: float


PUBLISHED = Case("500/s burst 50", 400.0, 30.0)
"""For two gatekeepers: 800 requests per second in total."""
CURVES = Case("100/s burst 20", 160.0, 10.0)
GATEKEEPERS = (1, 4, 16)
DELAYS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Point(msgspec.Struct, frozen=True):
    """The excess of one run."""

    algorithm: AlgorithmName
    gatekeepers: int
    control_delay: float
    excess: float
    """The maximum over the run of the requests admitted beyond rate × time + burst."""
    source: Source


def curves(case: Case) -> Iterator[Point]:
    """Yield the formula and the simulated points for each algorithm, number of gatekeepers and control delay."""
    rule = Rule.parse(case.rule)
    for algorithm, gatekeepers, delay in product(ALGORITHMS, GATEKEEPERS, DELAYS):
        rate = case.rate * gatekeepers
        bus = BusSettings(rule, algorithm, gatekeepers, delay, batch_delay=BATCH_DELAY)
        loads: dict[Source, list[Arrival]] = {
            "even": evenly(rate, case.seconds, gatekeepers),
            "random": randomly(rate, case.seconds, gatekeepers, seed=1),
        }
        formula = steady_excess(rule, algorithm, case.seconds, rate=rate, control_delay=delay)
        yield Point(algorithm, gatekeepers, delay, formula, "formula")
        for source, arrivals in loads.items():
            excess = simulate(bus, arrivals).excess(rule, case.seconds)
            yield Point(algorithm, gatekeepers, delay, excess, source)


def published(*, gatekeepers: int = 2, max_delay: float = 0.0) -> Iterator[tuple[AlgorithmName, Local, list[float]]]:
    """Yield by how many percent the admitted requests of the published case differ from the rule, for all `DELAYS`."""
    rule, seconds = Rule.parse(PUBLISHED.rule), PUBLISHED.seconds
    arrivals = evenly(2 * PUBLISHED.rate, seconds, gatekeepers)
    for algorithm, local in product(ALGORITHMS, get_args(Local)):
        buses = [
            BusSettings(rule, algorithm, gatekeepers, delay, BATCH_DELAY, max_delay, local=local) for delay in DELAYS
        ]
        admitted = [simulate(bus, arrivals).admitted(seconds) for bus in buses]
        yield algorithm, local, [100 * (count / permitted(rule, seconds) - 1) for count in admitted]


def plot(points: Sequence[Point], case: Case, file: Path) -> None:
    """Draw one panel per algorithm: the excess by control delay, one colour per number of gatekeepers."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "headgate", "svg.fonttype": "none", "font.size": 11})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(ALGORITHMS), figsize=(14, 6.2), sharey=True, layout="constrained")
    styles = {"formula": ("-", ""), "even": ("", "o"), "random": ("", "x"), "measured": ("", "s")}
    for panel, algorithm in zip(panels, ALGORITHMS, strict=True):
        for number, gatekeepers in enumerate(GATEKEEPERS):
            for source, (line, marker) in styles.items():
                chosen = [
                    point
                    for point in points
                    if (point.algorithm, point.gatekeepers, point.source) == (algorithm, gatekeepers, source)
                ]
                panel.plot(
                    [point.control_delay * 1_000 for point in chosen],
                    [max(point.excess, _LEAST) for point in chosen],
                    linestyle=line or "none",
                    marker=marker,
                    markersize=8 if source == "measured" else 6,
                    fillstyle="none" if source != "random" else "full",
                    color=f"C{number}",
                    label=f"{gatekeepers} × {case.rate:g}/s: {source}",
                )
        panel.set(title=algorithm, xlabel="control delay in ms", xscale="log", yscale="log")
        panel.set_xticks([delay * 1_000 for delay in DELAYS], [f"{delay * 1_000:g}" for delay in DELAYS], minor=False)
        panel.minorticks_off()
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel(f"requests admitted beyond {case.rule}\nwithin {case.seconds:g} s (0.5: none)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(GATEKEEPERS))
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


_LEAST = 0.5
"""The lowest value on a logarithmic axis; all lower ones are drawn there."""
_HEADER = f"{'control delay in ms':34}" + "".join(f"{delay * 1_000:>9g}" for delay in DELAYS)


def _print_table(print_line: Callable[[str], None], case: Case, points: Sequence[Point]) -> None:
    print_line(f"Excess within {case.seconds:g} s under {case.rule}, {case.rate:g}/s offered to each gatekeeper")
    print_line(_HEADER)
    rows: dict[str, list[float]] = {}
    for point in points:
        rows.setdefault(f"{point.algorithm:10}{point.gatekeepers:>3} {point.source}", []).append(point.excess)
    for name, row in rows.items():
        print_line(f"{name:34}" + "".join(f"{value:9.0f}" for value in row))


def _print_published(print_line: Callable[[str], None]) -> None:
    for gatekeepers, max_delay in ((2, 0.0), (2, 5.0), (1, 0.0)):
        print_line("")
        print_line(
            f"Difference in percent: {PUBLISHED.rule}, {2 * PUBLISHED.rate:g}/s for {PUBLISHED.seconds:g} s, "
            f"gatekeepers: {gatekeepers}, max_delay: {max_delay:g}"
        )
        print_line(_HEADER)
        for algorithm, local, row in published(gatekeepers=gatekeepers, max_delay=max_delay):
            print_line(f"{algorithm:10}{local:24}" + "".join(f"{value:+9.1f}" for value in row))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the points of the curves as JSON.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Draw the curves to this SVG file.")
def main(*, as_json: bool, plot_file: Path | None) -> None:
    """Simulate the excess over the rule, and compare it with the formula and with what was measured."""
    points = list(curves(CURVES))
    if MEASURED.exists():
        points += msgspec.json.decode(MEASURED.read_bytes(), type=list[Point])
    if plot_file is not None:
        plot(points, CURVES, plot_file)
    elif as_json:
        json.dump([msgspec.structs.asdict(point) for point in points], sys.stdout, indent=1)
    else:
        _print_table(click.echo, CURVES, points)
        _print_published(click.echo)


if __name__ == "__main__":
    main()
