"""The plots of the documentation, docs/pictures: `python -m lab.figures`, part of `make evidence`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lab.results import Metrics, Result
from lab.runner import run_scenario, worker_processes
from lab.scenario import read

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"
_RULE: Final = 0.102
"""What the rule of shared-rule.toml admits, in the unit of its goodput."""
_COLOURS: Final = {"gcra": "#1a7f37", "smockron": "#bf8700", "log": "#cf222e"}


def overload(result: Result, file: Path) -> None:
    """Draw what is answered in time with and without a concurrency limit, while half of the servers fail."""
    plt = _matplotlib()
    figure, axes = plt.subplots(figsize=(7.6, 2.8))
    for law, label, colour in (("concurrency", "with the limit", "#1a7f37"), ("none", "without", "#cf222e")):
        series = result.series[law]
        axes.plot(series.times, series.values["goodput"], label=label, color=colour)
    axes.set_xlabel("seconds")
    axes.set_ylabel("goodput")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _save(figure, axes, file)


def algorithms(policies: dict[str, Metrics], file: Path) -> None:
    """Draw what each algorithm admits at each control delay, as a multiple of the rule."""
    plt = _matplotlib()
    names = list(policies)[::-1]
    values = [float(policies[name]["goodput"]) / _RULE for name in names]  # type: ignore[arg-type]  # a number in this world
    figure, axes = plt.subplots(figsize=(7.6, 3.0))
    bars = axes.barh([_label(name) for name in names], values, color=[_COLOURS[name.split("-")[0]] for name in names])
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=4)
    axes.axvline(1.0, color="#57606a", linewidth=1)
    axes.set_xlabel("admitted in 10 s, as a multiple of the rule")
    axes.set_xlim(0, max(values) * 1.1)
    _save(figure, axes, file)


def _matplotlib() -> Any:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "headgate", "svg.fonttype": "none", "font.size": 11})
    return plt


def _save(figure: Any, axes: Any, file: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def _label(name: str) -> str:
    algorithm, delay = name.split("-")
    return f"{algorithm}, {delay.replace('ms', ' ms').replace('1s', '1 s')}"


def main(arguments: Sequence[str]) -> None:
    """Write the plots to a folder, by default that of the documentation."""
    folder = Path(arguments[0]) if arguments else FOLDER
    (shared,) = read(str(Path(__file__).parent / "scenarios" / "shared-rule.toml"))
    (halved,) = read("inner", ["seeds=1"], case="capacity-halved")
    with worker_processes() as workers:
        algorithms(run_scenario(shared, workers=workers).policies, folder / "algorithms.svg")
        overload(run_scenario(halved, workers=workers, record=True), folder / "overload.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
