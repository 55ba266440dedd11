"""What a plot shows, as values: panels of lines over time, with the spread over seeds. `plots` draws them."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from headgate.lab.results import Result

__all__ = ["CAPACITY", "Level", "Line", "Panel", "Shade", "format_value", "panels_over_time"]

MAX_POINTS: Final = 120
"""Points per line. More of them cannot be seen on a slide."""
MAX_POINTS_OF_ALL: Final = 2_400
"""Points of all lines: about 150 kB of SVG, with bands."""
_UNITS: Final = ((600.0, "s", 1.0), (4 * 3600.0, "min", 60.0), (math.inf, "h", 3600.0))


class Line(Struct, frozen=True):
    """One policy in one panel. `low` and `high` are empty where there is no spread to show."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    """As long as `x`; NaN where the signal has no value."""
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    note: str = ""
    """Follows the label at the end of the line: the mean of the line, for example."""


class Shade(NamedTuple):
    """A part of the x axis that is shaded, such as an outage."""

    start: float
    end: float
    label: str


class Level(NamedTuple):
    """A horizontal line, such as the capacity."""

    value: float
    label: str


class Panel(Struct, frozen=True):
    """One pair of axes with its lines. The labels of the axes name the units."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    levels: tuple[Level, ...] = ()
    shades: tuple[Shade, ...] = ()
    log_x: bool = False
    """A logarithmic x axis with a tick at each value."""
    y_max: float | None = None
    """The end of the y axis; None shows all values."""


CAPACITY: Final = Level(1.0, "capacity")
_OF_CAPACITY: Final = "multiple of capacity"
_SIGNALS: Final[Mapping[str, Panel]] = {
    "load": Panel("Load: requests that reach the server", "", _OF_CAPACITY, (), (CAPACITY,)),
    "goodput": Panel("Goodput: requests answered in time", "", _OF_CAPACITY, (), (CAPACITY,)),
    "waiting": Panel("Waiting: requests in queues", "", "requests", ()),
    "holds": Panel("Holds: agents that wait before they send", "", "agents", ()),
    "fraction": Panel("Fraction of automated traffic that the advice permits", "", "fraction", (), y_max=1.05),
}
"""The signals of worlds, in the order of the panels. Others are shown under their own names, after these."""


def panels_over_time(result: Result, *, signals: Sequence[str] = (), shades: Sequence[Shade] = ()) -> list[Panel]:
    """Return a panel for each recorded signal that has values, with a line for each policy.

    `signals` selects some of them, in that order; `shades` are in seconds of the world.
    """
    recorded = {name: None for series in result.series.values() for name in series.values if series.times}
    names = list(signals) or [*_SIGNALS, *(name for name in recorded if name not in _SIGNALS)]
    spans = [(series.times[0], series.times[-1]) for series in result.series.values() if series.times]
    start, end = min((first for first, _ in spans), default=0.0), max((last for _, last in spans), default=0.0)
    unit, seconds = next((name, seconds) for limit, name, seconds in _UNITS if end - start <= limit)
    scaled = tuple(Shade(shade.start / seconds, shade.end / seconds, shade.label) for shade in shades)
    names = [name for name in names if name in recorded]
    points = min(MAX_POINTS, MAX_POINTS_OF_ALL // max(1, len(names) * len(result.series)))
    panels = [
        replace(
            _SIGNALS.get(name) or Panel(_in_words(name), "", _in_words(name), ()),
            x_label=f"time in {unit}",
            lines=_lines(result, name, seconds, points),
            shades=scaled,
        )
        for name in names
    ]
    return [panel for panel in panels if panel.lines]


def _in_words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _lines(result: Result, name: str, seconds: float, points: int) -> tuple[Line, ...]:
    lines = []
    for policy, series in result.series.items():
        values = series.values.get(name, [])
        mean = _mean_present(values)
        if math.isnan(mean):
            continue
        low, high = (of[policy].values[name] if policy in of else [] for of in (result.low, result.high))
        spread = any(below < above for below, above in zip(low, high, strict=True))
        lines.append(
            Line(
                policy,
                [time / seconds for time in bins(series.times, points)],
                bins(values, points),
                bins(low, points) if spread else (),
                bins(high, points) if spread else (),
                format_value(mean),
            )
        )
    return tuple(lines)


def bins(values: Sequence[float], count: int) -> list[float]:
    """Return at most `count` means of neighbouring values, without those that are NaN."""
    width = -(-len(values) // count) or 1
    return [_mean_present(values[at : at + width]) for at in range(0, len(values), width)]


def _mean_present(values: Sequence[float]) -> float:
    present = [value for value in values if not math.isnan(value)]
    return math.fsum(present) / len(present) if present else math.nan


def format_value(value: float) -> str:
    """Format a value with two to three digits: 0.97, 1.5, 12, 1,200."""
    if value == 0:
        return "0"
    if abs(value) >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1.995 else f"{value:.2f}"
