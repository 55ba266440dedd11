"""What a plot shows, as values: panels of lines over time, with the spread over seeds. `plots` draws them."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from headgate.lab.results import NO_SERIES, Result, Series, thin

__all__ = ["CAPACITY", "Level", "Line", "Panel", "Shade", "format_value", "panels_over_time"]

MAX_POINTS: Final = 2_400
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
    x_ticks: tuple[float, ...] = ()
    """The ticks of a logarithmic x axis, on which each value is marked; empty for a linear axis."""
    connected: bool = True
    """Whether lines connect the values; otherwise only marks are drawn."""
    y_max: float | None = None
    """The end of the y axis; None shows all values."""


CAPACITY: Final = Level(1.0, "capacity")
_OF_CAPACITY: Final = "multiple of capacity"
_SIGNALS: Final[Mapping[str, Panel]] = {
    "demand": Panel("Demand: requests if nothing is held or refused", "", _OF_CAPACITY, (), (CAPACITY,)),
    "offered": Panel("Offered: requests that reach the gate", "", _OF_CAPACITY, (), (CAPACITY,)),
    "load": Panel("Load: requests that reach the server", "", _OF_CAPACITY, (), (CAPACITY,)),
    "goodput": Panel("Goodput: requests answered in time", "", _OF_CAPACITY, (), (CAPACITY,)),
    "refused": Panel("Refused: requests that the gate refuses", "", _OF_CAPACITY, ()),
    "late": Panel("Late: requests whose clients give up", "", _OF_CAPACITY, ()),
    "failed": Panel("Failed: requests answered by errors", "", _OF_CAPACITY, ()),
    "latency_p50": Panel("Latency, median", "", "s", ()),
    "latency_p99": Panel("Latency, 99th percentile", "", "s", ()),
    "waiting": Panel("Waiting: requests in queues", "", "requests", ()),
    "queued": Panel("Queued: requests in the queue of the limit", "", "requests", ()),
    "in_flight": Panel("In flight: requests at the server", "", "requests", ()),
    "limit": Panel("Limit of the requests in flight", "", "requests", ()),
    "holds": Panel("Holds: agents whose policy makes them wait", "", "agents", ()),
    "local_refusals": Panel("Local refusals: attempts that policies refuse", "", "attempts per tick", ()),
    "fraction": Panel("Fraction of automated traffic that is advised", "", "fraction", (), y_max=1.05),
}
"""The signals of worlds, in the order of the panels. Others are shown under their own names, after these."""


def panels_over_time(result: Result, *, signals: Sequence[str] = (), shades: Sequence[Shade] = ()) -> list[Panel]:
    """Return a panel for each recorded signal, with a line for each policy, unless the signal is 0 or NaN throughout.

    `signals` selects some of them, in that order; `shades` are in seconds of the world.
    """
    recorded = {name: None for series in result.series.values() for name in series.values if _is_shown(series, name)}
    names = [name for name in signals if name in recorded] if signals else sorted(recorded, key=_position)
    length = MAX_POINTS // max(1, len(names) * len(result.series))
    mean, low, high = (
        {policy: thin(series, length) for policy, series in of.items()}
        for of in (result.series, result.low, result.high)
    )
    end = max((series.times[-1] for series in mean.values() if series.times), default=0.0)
    unit, seconds = next((name, seconds) for limit, name, seconds in _UNITS if end <= limit)
    scaled = tuple(Shade(shade.start / seconds, shade.end / seconds, shade.label) for shade in shades)
    return [
        replace(
            _panel_of(name),
            x_label=f"time in {unit}",
            lines=tuple(
                _line(policy, name, seconds, (series, low.get(policy, NO_SERIES), high.get(policy, NO_SERIES)))
                for policy, series in mean.items()
                if _present(series, name)
            ),
            shades=scaled,
        )
        for name in names
    ]


def _known(name: str) -> str:
    """Return the signal that this is, or that it is for one of several origins (`shop_load`); "" for an unknown one."""
    return next((known for known in _SIGNALS if name == known or name.endswith(f"_{known}")), "")


def _position(name: str) -> int:
    known = _known(name)
    return list(_SIGNALS).index(known) if known else len(_SIGNALS)


def _panel_of(name: str) -> Panel:
    known = _known(name)
    if not known:
        return Panel(name, "", name, ())
    panel = _SIGNALS[known]
    origin = name.removesuffix(known).removesuffix("_")
    return replace(panel, title=f"{origin}: {panel.title[0].lower()}{panel.title[1:]}") if origin else panel


def _present(series: Series, name: str) -> list[float]:
    return [value for value in series.values.get(name, []) if not math.isnan(value)]


def _is_shown(series: Series, name: str) -> bool:
    return any(_present(series, name))


def _line(policy: str, name: str, seconds: float, of_policy: tuple[Series, Series, Series]) -> Line:
    series = of_policy[0]
    y, below, above = (one.values.get(name, []) for one in of_policy)
    spread = any(least < most for least, most in zip(below, above, strict=True))
    present = _present(series, name)
    return Line(
        policy,
        [time / seconds for time in series.times],
        y,
        below if spread else (),
        above if spread else (),
        format_value(math.fsum(present) / len(present)),
    )


def format_value(value: float) -> str:
    """Format a value with two to three digits: 0.97, 1.5, 12, 1,200."""
    if value == 0:
        return "0"
    if abs(value) >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1.995 else f"{value:.2f}"
