"""`headgate replay --throttle`: what the throttle would have said to a log of responses and questions.

The real throttle answers, one line at a time; its time is the log's.
"""

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Final

import click
import msgspec
from click.core import ParameterSource

from headgate.cli.access_log import MAX_LINE_SIZE, Malformed, decompressed, lines, open_log
from headgate.cli.params import Parsed, number
from headgate.cli.terminal import harmless
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle

__all__ = ["check_flags", "flags", "replay_throttle"]

_POLICIES: Final = {"draft": Policy, "chromium": Policy.chromium}
_OF_RULES: Final = frozenset({"rules", "algorithm", "max_delay", "form", "field"})
_OF_THROTTLE: Final = frozenset({"policy", "jitter", "draw"})

_EXAMPLE: Final = '{"t": 0, "url": "https://example.com/", "status": 503}'


def _parse_draw(text: str) -> float:
    draw = number("a number")(text)
    if draw >= 1:
        raise ConfigurationError(f"must be a number of at least 0 and less than 1, got {text!r}")
    return draw


class _Line(msgspec.Struct):
    """One line of the log: a response has a status, a question only a URL, a gesture neither."""

    t: int | float
    url: str | None = None
    status: Annotated[int, msgspec.Meta(ge=100, le=999)] | None = None
    headers: dict[str, str | int] = {}
    gesture: bool = False


_decode = msgspec.json.Decoder(_Line).decode


def flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of the throttle's mode."""
    for option in (
        click.option(
            "--draw",
            type=Parsed("number", _parse_draw),
            help="Result of every random draw, 0 or more and less than 1; random by default.",
        ),
        click.option("--jitter", type=float, metavar="X", help="The policy's jitter factor; its own if left out."),
        click.option("--policy", type=click.Choice(list(_POLICIES)), default="draft", help="How it backs off."),
        click.option("--throttle", is_flag=True, help="Replay responses through an agent's throttle, not a rule."),
    ):
        command = option(command)
    return command


def check_flags(context: click.Context) -> None:
    """Refuse, as a wrong use, flags that go with the other mode, and a rule's mode without a rule."""
    throttle = context.params["throttle"]
    for parameter in context.command.params:
        name = parameter.name or ""
        if name == "rules" and not throttle and not context.params[name]:
            hint = "; give one, such as '10/s burst 20', or replay responses with --throttle"
            raise click.UsageError(f"missing option '--rule'{hint}", context)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in (_OF_RULES if throttle else _OF_THROTTLE):
            goes = "does not go with" if throttle else "goes with"
            raise click.UsageError(f"{parameter.opts[0]} {goes} --throttle", context)


def replay_throttle(file: str, *, policy: str, jitter: float | None, draw: float | None) -> None:
    """Print what the throttle says after each line of a file; "-" is standard input.

    Raises `ConfigurationError`, which names the line, at the first that cannot be read.
    """
    chosen = _POLICIES[policy]()
    if jitter is not None:
        chosen = replace(chosen, jitter_factor=jitter)
    throttle = Throttle(chosen, draw=random.random if draw is None else lambda: draw)
    number = 0
    try:
        with open_log(file) as source:
            for number, text in enumerate(lines(decompressed(source)), start=1):  # noqa: B007 - told of below
                if text.strip():
                    click.echo(json.dumps(_answer(throttle, _line(text))))
    except Malformed as error:
        raise ConfigurationError(f"{file}: line {number}: {harmless(str(error))}") from None


def _line(text: bytes) -> _Line:
    if len(text) > MAX_LINE_SIZE:
        raise Malformed(f"longer than {MAX_LINE_SIZE} bytes")
    try:
        line = _decode(text)
        line.t + 0.0  # more than a float can hold
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(f"expected a line such as {_EXAMPLE}: {error}") from None
    return line


def _answer(throttle: Throttle, line: _Line) -> dict[str, object]:
    """Tell the throttle of one line; give what is printed for it."""
    now = float(line.t)
    if line.gesture:
        throttle.user_gesture(now=now)
        return {"t": line.t, "url": None, "target": None, "failures": 0, "release_ms": 0, "held": False}
    if line.url is None:
        raise Malformed('neither a "url" nor "gesture": true')
    if line.status is not None:
        headers = [(name, str(value)) for name, value in line.headers.items()]
        throttle.response_received(line.url, line.status, headers, now=now)
    found = throttle.explain(line.url, now=now)
    if found.target is None:
        raise Malformed(f"invalid URL {line.url[:80]!r}; expected an http or https URL")
    wait = max(0.0, found.release - now) * 1_000
    return {
        "t": line.t,
        "url": line.url,
        "target": found.target,
        "failures": found.failures,
        "release_ms": round(wait) if math.isfinite(wait) else None,
        "held": found.held,
    }
