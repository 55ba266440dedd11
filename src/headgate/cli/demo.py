"""`headgate demo`: the whole system on this machine in two minutes, overloaded with and without headgate."""

import io
import os
import select
import shutil
import sys
from typing import Final

import click

from headgate.cli.demo_picture import HEIGHT, WIDTH, Picture, announcement, frame_line, opening, result_line
from headgate.cli.output import print_json
from headgate.cli.params import Parsed, number
from headgate.runtime.demo.measure import PhaseResult
from headgate.runtime.demo.plan import MAX_SECONDS, MIN_SECONDS, Phase, Plan
from headgate.runtime.demo.show import Frame, View, run_show

_LINES: Final = 20
"""Lines of frames over the whole demonstration, if the output is not a terminal."""
_SECONDS: Final = Parsed("seconds", number("seconds", MIN_SECONDS, MAX_SECONDS))


@click.command()
@click.option(
    "--seconds",
    type=_SECONDS,
    default=Plan().seconds,
    show_default=True,
    metavar="S",
    help="How long all phases take together; starting takes a few seconds more.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures of the phases as one JSON object, at the end.")
def demo(*, seconds: float, as_json: bool) -> None:
    """Show what headgate does under overload, in two minutes.

    It starts an origin of fixed capacity, a gate, two prefetch proxies, and people, agents and crawlers as processes
    that listen on loopback only, and shows five phases: calm, overload without headgate, overload with it, an outage,
    recovery. All of it ends with the command. For a gate to try by hand, see: headgate serve --demo.

    \b
    headgate demo
    headgate demo --seconds 20 --json

    Each phase in the JSON output has requests per second (offered, capacity, goodput); people_served, the part of the
    requests of people that was answered in time; people_p99_ms, the 99th percentile of how long they waited, the
    deadline of a second included; and fraction, what the published traffic advice admits, null without a gate.
    """
    plan = Plan(seconds)
    results = run_show(plan, _Output().view(plan, as_json=as_json))
    if as_json:
        import msgspec

        print_json({"phases": msgspec.to_builtins(results)})


class _Output:
    """Standard output, written without ever waiting for its reader: what it has no room for is left out."""

    def __init__(self) -> None:
        self._poll: select.poll | None = None
        try:
            descriptor = sys.stdout.fileno()
        except (OSError, io.UnsupportedOperation):
            pass  # not a file, such as in a test
        else:
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)
        self.draws = sys.stdout.isatty() and _fits_terminal()
        """Whether a picture can be drawn on it."""

    def check(self) -> bool:
        """Return whether there is room for some lines. Raises `BrokenPipeError` if its reader is gone."""
        if self._poll is None:
            return True
        events = sum(event for _, event in self._poll.poll(0))
        if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            raise BrokenPipeError
        return bool(events & select.POLLOUT)

    def write(self, text: str) -> bool:
        """Write a text and a line end, if there is room; return whether there was."""
        if not self.check():
            return False
        click.echo(text)
        sys.stdout.flush()
        return True

    def _check_only(self, _event: object) -> None:
        self.check()

    def view(self, plan: Plan, *, as_json: bool) -> View:
        """Return what shows the demonstration here."""
        if as_json:
            return self._check_only
        return _Terminal(self, plan) if self.draws else _Log(self, plan)


def _fits_terminal() -> bool:
    """Return whether the terminal can move its cursor, and is large enough to draw the picture again in place."""
    columns, lines = shutil.get_terminal_size()
    return os.environ.get("TERM") != "dumb" and columns >= WIDTH and lines > HEIGHT


class _Log:
    """Shows lines, for a file or a pipe."""

    def __init__(self, output: _Output, plan: Plan) -> None:
        self._output = output
        self._plan = plan
        self._pause = plan.seconds / _LINES
        self._next = 0.0
        output.write(opening(plan))

    def __call__(self, event: Phase | Frame | PhaseResult) -> None:
        """Show an event; of the frames, only some."""
        if isinstance(event, Phase):
            self._next = self._pause
            self._output.write(f"\n{announcement(event)}")
        elif isinstance(event, PhaseResult):
            self._output.write(result_line(event))
        elif event.elapsed >= self._next:
            self._next = event.elapsed + self._pause
            self._output.write(frame_line(event, self._plan))
        else:
            self._output.check()


class _Terminal:
    """Draws a picture, and draws it again in place; the stories and figures of the phases stay above it."""

    def __init__(self, output: _Output, plan: Plan) -> None:
        self._output = output
        self._plan = plan
        self._picture = Picture(plan)
        self._height = 0
        self._done = 0.0
        output.write(opening(plan))

    def __call__(self, event: Phase | Frame | PhaseResult) -> None:
        """Show an event."""
        erasure = f"\x1b[{self._height}A\x1b[J" if self._height else ""
        lines = self._lines(event)
        if self._output.write(erasure + "\n".join(lines)):
            self._height = len(lines) if isinstance(event, Frame) else 0

    def _lines(self, event: Phase | Frame | PhaseResult) -> list[str]:
        if isinstance(event, Phase):
            return ["", announcement(event)]
        if isinstance(event, Frame):
            return self._picture.draw(event, progress=(self._done + event.elapsed) / self._plan.seconds)
        self._done += self._plan.seconds * next(one.part for one in self._plan.phases if one.name == event.name)
        return [result_line(event)]
