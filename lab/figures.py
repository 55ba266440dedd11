"""The plots of the documentation, docs/pictures: `python -m lab.figures`, part of `make evidence`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.results import Metrics
from lab.runner import run_scenario, worker_processes
from lab.scenario import read

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"
_RULE: Final = 0.102
"""What the rule of shared-rule.toml admits, in the unit of its goodput."""
_COLOURS: Final = {"gcra": "#1a7f37", "smockron": "#bf8700", "log": "#cf222e"}


def algorithms(policies: dict[str, Metrics], file: Path) -> None:
    """Draw what each algorithm admits at each control delay, as a multiple of the rule."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "headgate", "svg.fonttype": "none", "font.size": 11})
    names = list(policies)[::-1]
    values = [float(policies[name]["goodput"]) / _RULE for name in names]  # type: ignore[arg-type]  # a number in this world
    figure, axes = plt.subplots(figsize=(7.6, 3.0))
    bars = axes.barh([_label(name) for name in names], values, color=[_COLOURS[name.split("-")[0]] for name in names])
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=4)
    axes.axvline(1.0, color="#57606a", linewidth=1)
    axes.set_xlabel("admitted in 10 s, as a multiple of the rule")
    axes.set_xlim(0, max(values) * 1.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _label(name: str) -> str:
    algorithm, delay = name.split("-")
    return f"{algorithm}, {delay.replace('ms', ' ms').replace('1s', '1 s')}"


def main(arguments: Sequence[str]) -> None:
    """Write the plots to a folder, by default that of the documentation."""
    folder = Path(arguments[0]) if arguments else FOLDER
    (scenario,) = read(str(Path(__file__).parent / "scenarios" / "shared-rule.toml"))
    with worker_processes() as workers:
        result = run_scenario(scenario, workers=workers)
    algorithms(result.policies, folder / "algorithms.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
