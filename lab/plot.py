"""Draw the series of a result with matplotlib: a panel for each signal, a line for each law."""

import math
from pathlib import Path

from headgate.errors import explaining
from lab.results import Result


def plot(result: Result, file: str) -> None:
    """Draw the mean series over time to a file; its suffix, such as .svg or .png, is the format."""
    import matplotlib.pyplot as plt

    signals = dict.fromkeys(
        name
        for series in result.series.values()
        for name, values in series.values.items()
        if any(value for value in values if not math.isnan(value))
    )
    figure, rows = plt.subplots(len(signals), figsize=(12, 2.5 * len(signals)), sharex=True, squeeze=False)
    for name, axes in zip(signals, rows[:, 0], strict=True):
        for law, series in result.series.items():
            if name in series.values:
                axes.plot(series.times, series.values[name], label=law)
        axes.set_title(name, loc="left")
        axes.set_ylim(bottom=0)
    rows[0, 0].legend(loc="upper right")
    rows[-1, 0].set_xlabel("seconds")
    figure.suptitle(f"{result.scenario}: {result.description}")
    figure.tight_layout()
    with explaining(file, "expected a file that can be written, .svg or .png"):
        figure.savefig(Path(file))
    plt.close(figure)
