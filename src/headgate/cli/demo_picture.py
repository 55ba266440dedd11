"""What `headgate demo` shows: a picture that is redrawn in place, lines for other outputs, and figures."""

import textwrap
from collections.abc import Sequence
from typing import Final

from headgate.cli.output import style
from headgate.runtime.demo.measure import PhaseResult
from headgate.runtime.demo.plan import Phase, Plan
from headgate.runtime.demo.show import Frame

WIDTH: Final = 80
"""Maximum columns of all lines."""
HEIGHT: Final = 13
"""Lines of the picture."""
_BAR_WIDTH: Final = 44
_HISTORY_WIDTH: Final = 60
_HISTORY: Final = ("wanted", "sent", "served", "people")
_PARTS: Final = " ▏▎▍▌▋▊▉"
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_FULL_LOAD: Final = 10.0
"""Requests relative to the capacity that fill a bar."""
_GOOD: Final = 0.99
_POOR: Final = 0.9


def opening(plan: Plan) -> str:
    """Return what is said before the first phase."""
    text = (
        f"An origin that serves {plan.capacity:g} requests a second, people, polite agents, prefetch proxies and "
        f"crawlers, all as processes on this machine: {len(plan.phases)} phases, {plan.seconds:g} seconds."
    )
    return f"{textwrap.fill(text, WIDTH)}\nStarting the processes, which takes some seconds more …"


def announcement(phase: Phase) -> str:
    """Return the title and the story of a phase."""
    return f"{style(phase.title, bold=True)}\n{textwrap.fill(phase.story, WIDTH)}"


def frame_line(frame: Frame, plan: Plan) -> str:
    """Return a frame as one line."""
    advice = "" if frame.fraction is None else f"; advice {_percent(frame.fraction)}"
    return (
        f"{frame.elapsed:4.0f} s  wanted {frame.offered:4.0f}, sent {frame.sent:4.0f},"
        f" served {frame.served:3.0f} of {plan.capacity:.0f}/s; people {_percent(frame.people_served)}{advice}"
    )


def result_line(result: PhaseResult) -> str:
    """Return the figures of a phase as one line."""
    advice = "no advice" if result.fraction is None else f"advice {_percent(result.fraction)}"
    people = f"people {_percent(result.people_served)}, p99 {result.people_p99_ms:.0f} ms"
    return (
        f"  wanted {result.offered:.0f}/s; served {result.goodput:.0f} of {result.capacity:.0f}/s;"
        f" {_judge(people, result.people_served)}; {advice}"
    )


class Picture:
    """The state of the demonstration in a few lines of text, with a history of the whole."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._history: list[tuple[float, ...]] = []

    def draw(self, frame: Frame, *, progress: float) -> list[str]:
        """Return the lines of the picture after a frame at a `progress` from 0 to 1 of the whole."""
        capacity = self._plan.capacity
        full = _FULL_LOAD * capacity
        cell = (frame.offered / full, frame.sent / full, frame.served / capacity, frame.people_served)
        wanted = min(_HISTORY_WIDTH, int(progress * _HISTORY_WIDTH) + 1)
        self._history += [cell] * (wanted - len(self._history))
        scales = (f"{full:.0f}/s", f"{full:.0f}/s", f"{capacity:.0f}/s", "100 %")
        limit = "" if frame.limit is None else f"   limit {frame.limit:.0f} in flight, {frame.queued} waiting"
        people = _judge(f"{_percent(frame.people_served):>8}", frame.people_served)
        advice = "  –" if frame.fraction is None else _percent(frame.fraction)
        return [
            "",
            f"  {frame.phase.title:<40}{frame.elapsed:>4.0f} s of {frame.seconds:.0f} s",
            f"  wanted      {frame.offered:>6.0f}/s  {_bar(frame.offered / full)}",
            f"  sent        {frame.sent:>6.0f}/s  {_bar(frame.sent / full, mark=capacity / full)}",
            f"  served      {frame.served:>6.0f}/s  {_bar(frame.served / full, mark=capacity / full)}",
            f"  capacity    {capacity:>6.0f}/s  {' ' * int(_BAR_WIDTH * capacity / full)}│{limit}",
            f"  people      {people}  {_bar(frame.people_served)}",
            f"  advice      {advice:>8}  {_bar(frame.fraction or 0.0)}",
            "",
            *(
                f"  {name:<8}{_history(row):<{_HISTORY_WIDTH}} of {whole}"
                for name, whole, row in zip(_HISTORY, scales, zip(*self._history, strict=True), strict=True)
            ),
        ]


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.1 or part == 0.0 else f"{100 * part:.1f} %"


def _judge(text: str, part: float) -> str:
    """Colour a text by the part of people that is served."""
    return style(text, fg="green" if part >= _GOOD else "red" if part < _POOR else "yellow")


def _bar(part: float, *, mark: float | None = None) -> str:
    """Return a bar, with a line at `mark`."""
    eighths = round(8 * _BAR_WIDTH * min(max(part, 0.0), 1.0))
    bar = "█" * (eighths // 8) + (_PARTS[eighths % 8] if eighths % 8 else "")
    if mark is not None and len(bar) <= (at := int(_BAR_WIDTH * mark)):
        bar = f"{bar:<{at}}│"
    return bar


def _history(parts: Sequence[float]) -> str:
    levels = (min(len(_LEVELS) - 1, int(len(_LEVELS) * min(max(part, 0.0), 1.0))) for part in parts)
    return "".join(_LEVELS[level] for level in levels)
