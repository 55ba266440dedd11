"""Draw panels as SVG or PNG with matplotlib, in the size of a slide, with the same bytes for the same values.

Each line has its name at its end, and a style of its own besides its colour, so that a plot needs no legend and can be
printed in grey. The colours are close to those of Okabe and Ito, which colour-blind readers can tell apart. Text in an
SVG stays text. Matplotlib is imported only when something is drawn.
"""

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.errors import ConfigurationError, MissingExtra, reason_of
from headgate.lab.charts import Line, Panel, Shade, panels_over_time
from headgate.lab.results import Result
from headgate.lab.scenario import Scenario
from headgate.lab.ticks.settings import TickScenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_plot_file", "draw", "plot"]

_WIDTH: Final = 13.33
_ROW_HEIGHT: Final = 3.4
_MIN_HEIGHT: Final = 6.2
_HEAD_HEIGHT: Final = 1.1
_FONT: Final = 14.0
_TITLE_LENGTH: Final = 78
"""Characters of a line of the title."""
_SMALL: Final = 12.0
_INK: Final = "#333333"
_FAINT: Final = "#6E6E6E"
_GRID: Final = "#E6E6E6"
_SHADED: Final = "#EDEDED"
_PATH: Final = re.compile(r' d="[^"]*"')
_DIGITS: Final = re.compile(r"(\.\d)\d+")
_REPEATED: Final = re.compile(r"(?<=\nL)((?: -?[\d.]+)+) \nL(?= )")


_NEAR_ZERO: Final = 0.02


class _Style(NamedTuple):
    color: str
    dashes: str | tuple[float, tuple[float, ...]] = "-"
    width: float = 2.0


_STYLES: Final[Mapping[str, _Style]] = {
    "together": _Style("#0068A8", width=3.4),
    "draft": _Style("#C24E00", width=2.4),
    "chromium": _Style("#6A51A3", (0, (5, 1.5))),
    "advice": _Style("#00805E", (0, (7, 2))),
    "none": _Style("#555555", (0, (1, 1.2))),
    "full_jitter": _Style("#B8608F", (0, (4, 1.5, 1, 1.5))),
    "retry_budget": _Style("#9A6A00", (0, (2.5, 1.2))),
    "sre": _Style("#3391C4", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
}
"""The built-in policies look the same in every plot."""
_OTHER_STYLES: Final = (
    _Style("#0068A8"),
    _Style("#C24E00", (0, (5, 1.5))),
    _Style("#00805E", (0, (2, 1.2))),
    _Style("#B8608F", (0, (6, 1.5, 1, 1.5))),
    _Style("#000000", (0, (1, 1.2))),
)
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
_PARAMETERS: Final[Mapping[str, Any]] = {
    "svg.hashsalt": "headgate",
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": _FONT,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.labelsize": _FONT - 1,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": _FONT + 1,
    "axes.titlepad": 12,
    "axes.xmargin": 0.0,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "xtick.labelsize": _FONT - 1,
    "ytick.labelsize": _FONT - 1,
    "text.color": _INK,
}


def check_plot_file(file: str) -> None:
    """Raise an error unless a plot can be drawn to this file.

    Its folder has to exist, its suffix has to be known, and matplotlib has to be installed.
    """
    folder = Path(file).parent
    if not folder.is_dir():
        raise ConfigurationError(f"{file}: no folder {str(folder)!r}; name a file that can be written")
    _format_of(Path(file))
    _import_matplotlib()


def plot(result: Result, file: str, scenario: Scenario) -> None:
    """Draw the recorded series of a scenario's result over time to an SVG or PNG file."""
    panels = panels_over_time(result, shades=outages_of(scenario))
    if not panels:
        raise ConfigurationError(f"{result.scenario}: the scenario records nothing over time, so there is no plot")
    content = draw(panels, title=scenario.description, caption=caption_of(result), suffix=_format_of(Path(file)))
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"{file}: {reason_of(error)}; name a file that can be written") from None


def caption_of(result: Result) -> str:
    """Return what the lines, the bands and the numbers at the lines are."""
    if result.recorded < 2:
        return "One seed. The numbers at the lines are their means."
    seeds = f"Mean of {result.recorded} seeds; bands: from 10 % to 90 % of the seeds."
    return f"{seeds} The numbers at the lines are their means."


def outages_of(scenario: Scenario) -> list[Shade]:
    """Return the outages of a scenario in discrete time, to be shaded: of all origins, and of single ones."""
    if not isinstance(scenario, TickScenario):
        return []
    shades = [Shade(*span, f"{origin.name} down") for origin in scenario.origins for span in origin.outages]
    if scenario.outage:
        start, end = scenario.outage_ticks
        shades.append(Shade(start * scenario.tick, end * scenario.tick, "outage"))
    return shades


def _format_of(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise ConfigurationError(f"{file}: unknown format of a plot, {suffix or 'no suffix'}; expected .svg or .png")
    return suffix.removeprefix(".")


def _import_matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError:
        raise MissingExtra("lab", "a plot") from None
    return matplotlib


def draw(
    panels: Sequence[Panel], *, title: str, caption: str = "", columns: int | None = None, suffix: str = "svg"
) -> bytes:
    """Return the panels as one picture, in rows from the top left; `MissingExtra` without matplotlib."""
    matplotlib = _import_matplotlib()
    columns = columns or (1 if len(panels) <= 2 else 2)
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(dict(_PARAMETERS)):
        height = _HEAD_HEIGHT + rows * max(_ROW_HEIGHT, _MIN_HEIGHT / rows)
        figure = matplotlib.figure.Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.15, h_pad=0.15, hspace=0.05, wspace=0.04)
        figure.suptitle(fill(title.removesuffix("."), _TITLE_LENGTH), x=0.012, ha="left", fontsize=_FONT + 5)
        if caption:
            figure.supxlabel(caption, x=0.012, ha="left", fontsize=_SMALL, color=_FAINT)
        labels = [
            (axes, _draw_panel(axes, panel))
            for number, panel in enumerate(panels, 1)
            for axes in [figure.add_subplot(rows, columns, number)]
        ]
        # The height of the axes, which decides how far labels must be apart, is known after the layout.
        figure.draw_without_rendering()
        for axes, of_panel in labels:
            _place_labels(axes, of_panel, height)
        return _encode(figure, suffix)


class _Label(NamedTuple):
    """The name at the end of a line, and what connects it to the line."""

    text: Any
    leader: Any
    y: float
    """The value that it names: the last one of the line."""


def _draw_panel(axes: "Axes", panel: Panel) -> list[_Label]:
    axes.set_title(panel.title, pad=26 if panel.shades else None)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.yaxis.set_major_formatter("{x:,.6g}")
    axes.locator_params(axis="x", steps=[1, 2, 3, 5, 6, 10])
    for shade in panel.shades:
        axes.axvspan(shade.start, shade.end, color=_SHADED, linewidth=0, zorder=0.5)
        small: dict[str, Any] = {"color": _FAINT, "fontsize": _SMALL, "ha": "center", "va": "bottom"}
        axes.text((shade.start + shade.end) / 2, 1.01, shade.label, transform=axes.get_xaxis_transform(), **small)
    labels = []
    for number, line in enumerate(panel.lines):
        style = _style_of(line, number)
        marker = _MARKERS[number % len(_MARKERS)] if panel.x_ticks else ""
        labels.append(_draw_line(axes, line, style if panel.connected else style._replace(dashes="none"), marker))
    for level in panel.levels:
        axes.axhline(level.value, color=_INK, linewidth=1.0, linestyle=(0, (6, 3)), zorder=1.5)
        labels.append(_add_label(axes, level.label, _INK, level.value))
    _set_scales(axes, panel)
    return labels


def _style_of(line: Line, number: int) -> _Style:
    return _STYLES.get(line.label) or _OTHER_STYLES[number % len(_OTHER_STYLES)]


def _draw_line(axes: "Axes", line: Line, style: _Style, marker: str) -> _Label:
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=style.color, alpha=0.15, linewidth=0)
    axes.plot(
        line.x, line.y, color=style.color, linestyle=style.dashes, linewidth=style.width, zorder=2 + style.width,
        marker=marker, markersize=7, clip_on=not marker,
    )  # fmt: skip
    last = next(value for value in reversed(line.y) if not math.isnan(value))
    return _add_label(axes, f"{line.label} {line.note}".rstrip(), style.color, last)


def _add_label(axes: "Axes", label: str, color: str, value: float) -> _Label:
    text = axes.text(1.035, 0.5, label, transform=axes.transAxes, color=color, va="center")
    (leader,) = axes.plot([], [], color=color, linewidth=0.8, transform=axes.transAxes, clip_on=False)
    return _Label(text, leader, value)


def _set_scales(axes: "Axes", panel: Panel) -> None:
    x = sorted({x for line in panel.lines for x in line.x})
    if panel.x_ticks:
        axes.set_xscale("log")
        axes.set_xticks(panel.x_ticks, [f"{tick:,g}" for tick in panel.x_ticks], minor=False)
        axes.minorticks_off()
    if len(x) > 1:
        # Samples stand at the middle of their intervals: the first one a little after 0.
        near_zero = not panel.x_ticks and 0.0 < x[0] < _NEAR_ZERO * x[-1]
        axes.set_xlim(0.0 if near_zero else x[0], x[-1])
    values = [value for line in panel.lines for value in (*line.y, *line.high)]
    highest = max(value for value in (*values, *(level.value for level in panel.levels)) if not math.isnan(value))
    axes.set_ylim(0.0, panel.y_max or highest * 1.08 or 1.0)


def _place_labels(axes: "Axes", labels: Sequence[_Label], figure_height: float) -> None:
    """Move the names at the ends of lines apart, and connect each to its line; heights are in inches."""
    height = axes.get_position().height * figure_height
    low, high = axes.get_ylim()
    ends = [min(max((label.y - low) / (high - low), 0.0), 1.0) for label in labels]
    for label, end, position in zip(labels, ends, spread_apart(ends, _FONT * 1.25 / 72 / height), strict=True):
        label.text.set_y(position)
        label.leader.set_data([1.003, 1.012, 1.024, 1.03], [end, end, position, position])


def spread_apart(positions: Sequence[float], gap: float) -> list[float]:
    """Return positions, in the same order, that are at least `gap` apart and close to the given ones.

    Groups of positions that overlap are centred on their mean. All stay within 0 to 1 if they fit.
    """
    groups: list[list[float]] = []
    order = sorted(range(len(positions)), key=lambda number: (positions[number], -number))
    for number in order:
        groups.append([positions[number]])
        while len(groups) > 1 and _start(groups[-2], gap) + len(groups[-2]) * gap > _start(groups[-1], gap):
            last = groups.pop()
            groups[-1] += last
    placed = [_start(group, gap) + gap * place for group in groups for place in range(len(group))]
    by_number = dict(zip(order, placed, strict=True))
    return [by_number[number] for number in range(len(positions))]


def _start(group: Sequence[float], gap: float) -> float:
    """Return the lowest position of a group: centred on its mean, and within 0 to 1."""
    size = (len(group) - 1) * gap
    return max(0.0, min(sum(group) / len(group) - size / 2, 1.0 - size))


def _encode(figure: "Figure", suffix: str) -> bytes:
    """Return the bytes of the file: without a date, and in SVG without digits that cannot be seen."""
    file = io.BytesIO()
    if suffix == "png":
        figure.savefig(file, format="png", dpi=150)
        return file.getvalue()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = _PATH.sub(_shorten_path, file.getvalue().decode())
    return text.replace("'DejaVu Sans'", "'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif").encode()


def _shorten_path(path: re.Match[str]) -> str:
    """Return the path with one decimal, and with the letter of a command only where the command changes."""
    return _REPEATED.sub(r"\1", _DIGITS.sub(r"\1", path[0]))
