"""`headgate replay --throttle`: apply the throttle to a log of responses and queries.

The real throttle decides, one line at a time, at the times of the log.
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
from headgate.cli.output import printable
from headgate.cli.params import Parsed, number
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle

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
    """A line of the log: a response has a status, a query only a URL, a gesture neither."""

    t: int | float
    url: str | None = None
    status: Annotated[int, msgspec.Meta(ge=100, le=999)] | None = None
    headers: dict[str, str | int] = {}
    gesture: bool = False


_decode = msgspec.json.Decoder(_Line).decode


def flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the throttle's mode to a command."""
    for option in (
        click.option(
            "--draw",
            type=Parsed("number", _parse_draw),
            help="Result of every random draw, 0 or more and less than 1; random by default.",
        ),
        click.option("--jitter", type=float, metavar="X", help="Jitter factor; by default that of the policy."),
        click.option("--policy", type=click.Choice(list(_POLICIES)), default="draft", help="Backoff policy."),
        click.option("--throttle", is_flag=True, help="Apply an agent's throttle instead of a rule."),
    ):
        command = option(command)
    return command


def check_flags(context: click.Context) -> None:
    """Raise `UsageError` for options of the other mode, and for a missing rule."""
    throttle = context.params["throttle"]
    for parameter in context.command.params:
        name = parameter.name or ""
        if name == "rules" and not throttle and not context.params[name]:
            hint = "; give one, such as '10/s burst 20', or replay responses with --throttle"
            raise click.UsageError(f"missing option '--rule'{hint}", context)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in (_OF_RULES if throttle else _OF_THROTTLE):
            goes = "cannot be used with" if throttle else "requires"
            raise click.UsageError(f"{parameter.opts[0]} {goes} --throttle", context)


def replay_throttle(file: str, *, policy: str, jitter: float | None, draw: float | None) -> None:
    """Print the decision of the throttle after each line of a file; "-" is standard input.

    Raises `ConfigurationError` with the number of the first malformed line.
    """
    chosen = _POLICIES[policy]()
    if jitter is not None:
        chosen = replace(chosen, jitter_factor=jitter)
    throttle = Throttle(chosen, draw=random.random if draw is None else lambda: draw)
    number = 0
    try:
        with open_log(file) as source:
            for number, text in enumerate(lines(decompressed(source)), start=1):  # noqa: B007 - used in the error
                if text.strip():
                    click.echo(json.dumps(_answer(throttle, _line(text))))
    except Malformed as error:
        raise ConfigurationError(f"{file}: line {number}: {printable(str(error))}") from None


def _line(text: bytes) -> _Line:
    if len(text) > MAX_LINE_SIZE:
        raise Malformed(f"longer than {MAX_LINE_SIZE} bytes")
    try:
        line = _decode(text)
        line.t + 0.0  # raises OverflowError for integers beyond the range of floats
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(f"expected a line such as {_EXAMPLE}: {error}") from None
    return line


def _answer(throttle: Throttle, line: _Line) -> dict[str, object]:
    """Apply one line to the throttle; return what is printed for it."""
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
