"""`headgate demo`: an overload with and without headgate, on this machine in two minutes."""

import io
import shutil
import sys
import textwrap
from contextlib import redirect_stderr
from typing import Final

import click

from headgate.cli.output import print_json, style
from headgate.cli.params import Parsed, number
from headgate.runtime.demo import CAPACITY, MAX_SECONDS, MIN_SECONDS, PHASES, Frame, Phase, PhaseResult, show

_WIDTH: Final = 80
_CLEAR: Final = "\r\x1b[K"
_BAR: Final = 20
_FULL: Final = 10.0
"""Requests relative to the capacity that fill a bar."""
_LINES: Final = 20
"""Lines of frames over the whole demonstration, if the output is not a terminal."""
_GOOD, _POOR = 0.99, 0.9
_SECONDS: Final = Parsed("seconds", number("seconds", MIN_SECONDS, MAX_SECONDS))


@click.command()
@click.option(
    "--seconds", type=_SECONDS, default=120.0, show_default=True, metavar="S", help="How long all phases take together."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures of the phases as one JSON object, at the end.")
def demo(*, seconds: float, as_json: bool) -> None:
    """Show what headgate does under overload, in two minutes.

    An origin of fixed capacity, a gate, people and polite agents run on loopback, in five phases: calm, overload
    without headgate, overload with it, an outage, recovery. Agents keep traffic advice for a fifteenth of the time, 8
    seconds of two minutes; agents elsewhere keep it for ten minutes at least, so a site sees the effect that much
    later. For a gate to try by hand, see: headgate serve --demo.

    \b
    headgate demo
    headgate demo --seconds 20 --json

    Each phase in the JSON output has requests per second (offered, capacity, goodput); people_served, the part of the
    requests of people that was answered in time; people_p99_ms, the 99th percentile of how long they waited, the
    deadline of a second included; and fraction, what the published traffic advice admits, null without a gate.
    """
    from headgate.runtime.lifecycle import run_event_loop

    results: list[PhaseResult] = []
    view = (lambda _event: None) if as_json else _Lines(seconds)

    async def main() -> int:
        results.extend(await show(seconds, view))
        return 0

    with redirect_stderr(io.StringIO()):  # what the gate logs would be lines in the picture
        run_event_loop(main)
    if as_json:
        import msgspec

        print_json({"phases": msgspec.to_builtins(results)})


class _Lines:
    """Shows the demonstration as lines; on a terminal, the frames of a phase are one line that changes."""

    def __init__(self, seconds: float) -> None:
        self._is_terminal = sys.stdout.isatty() and shutil.get_terminal_size().columns > _WIDTH
        self._pause = seconds / _LINES
        self._next = 0.0
        text = (
            f"An origin that serves {CAPACITY:g} requests a second, people and polite agents, all on this machine: "
            f"{len(PHASES)} phases, {seconds:g} seconds. Advice is fresh for {seconds / 15:.0f} s instead of ten "
            "minutes."
        )
        click.echo(textwrap.fill(text, _WIDTH))

    def __call__(self, event: Phase | Frame | PhaseResult) -> None:
        """Show an event."""
        if isinstance(event, Phase):
            self._next = self._pause
            click.echo(f"\n{style(event.title, bold=True)}\n{textwrap.fill(event.story, _WIDTH)}")
        elif isinstance(event, PhaseResult):
            click.echo(f"{_CLEAR if self._is_terminal else ''}{result_line(event)}")
        elif self._is_terminal:
            click.echo(f"{_CLEAR}{frame_line(event)}", nl=False)
        elif event.elapsed >= self._next:
            self._next = event.elapsed + self._pause
            click.echo(frame_line(event))


def frame_line(frame: Frame) -> str:
    """Return a frame as one line, with a bar of what is wanted, and in it of what is served."""
    wanted, served = (min(_BAR, round(_BAR * rate / CAPACITY / _FULL)) for rate in (frame.offered, frame.served))
    advice = "" if frame.fraction is None else f"; advice {_percent(frame.fraction)}"
    return (
        f"{frame.elapsed:4.0f} s {'█' * served + '░' * (wanted - served):{_BAR}} sent {frame.sent:4.0f}, "
        f"served {frame.served:3.0f} of {frame.offered:4.0f}/s; people {_percent(frame.people_served)}{advice}"
    )


def result_line(result: PhaseResult) -> str:
    """Return the figures of a phase as one line."""
    advice = "no advice" if result.fraction is None else f"advice {_percent(result.fraction)}"
    people = f"people {_percent(result.people_served)}, p99 {result.people_p99_ms:.0f} ms"
    color = "green" if result.people_served >= _GOOD else "red" if result.people_served < _POOR else "yellow"
    return (
        f"  wanted {result.offered:.0f}/s; served {result.goodput:.0f} of {result.capacity:.0f}/s; "
        f"{style(people, fg=color)}; {advice}"
    )


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.1 or part == 0.0 else f"{100 * part:.1f} %"
