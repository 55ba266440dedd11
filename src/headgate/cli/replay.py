"""`headgate replay`: apply a rule, or the throttle, to a log.

The algorithms of the gate decide, for one identifier after the other, without limits on identifiers and delayed
requests. With --throttle, the throttle of agents decides, one line at a time, at the times of the log.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import click
import msgspec
from click.core import ParameterSource

from headgate.cli.access_log import (
    FORMATS,
    MAX_LINE_SIZE,
    Malformed,
    Parser,
    RequestLog,
    batches,
    decompressed,
    lines,
    open_log,
    parser,
)
from headgate.cli.output import Advance, decode_with_escapes, exit_with_failure, printable, progress, shorten
from headgate.cli.params import SECONDS, Parsed, number
from headgate.errors import ConfigurationError
from headgate.limit import Domain, Rule
from headgate.limit.history import ALGORITHMS, AlgorithmName, OfflineGate
from headgate.throttle import Policy, Throttle

_UNITS = 1_000
"""Units of time per second of a replayed log."""
_DIGITS = 3
"""Significant decimal digits of a unit: a float represents the microseconds of any date."""
_TOP = 10
_STEP = 65_536
_POLICIES: Final = {"draft": Policy.draft, "chromium": Policy.chromium}
_OF_RULES: Final = frozenset({"rules", "algorithm", "max_delay", "form", "field", "domain"})
_OF_THROTTLE: Final = frozenset({"policy", "jitter", "draw"})
_JITTER: Final = Parsed("number", number("a number", 0, 1))
_SUGGESTED: Final = [f"{count}/s burst {2 * count}" for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)]
"""Rules to suggest, the strictest first."""
_HELD_SHARE: Final = 0.01
"""Share of clients that a suggested rule may reject now and then; in a log of ten or more, one more."""
_MANY: Final = 10
_EXAMPLE: Final = '{"t": 0, "url": "https://example.com/", "status": 503}'


class ReplayedIdentifier(msgspec.Struct, frozen=True):
    """An identifier that was held, with its counts."""

    identifier: str
    delayed: int
    rejected: int


class ReplayReport(msgspec.Struct, frozen=True):
    """The output of `--json`."""

    requests: int
    accepted: int
    delayed: int
    rejected: int
    identifiers: int
    malformed: int
    top: list[ReplayedIdentifier]
    rules: list[str]
    max_delay: float
    """Seconds, to the nearest millisecond: the longest delay of a delayed request."""
    is_spread: bool
    """Whether the log has whole seconds: then the requests of an identifier in a second are spread evenly over it."""


class Replay:
    """The verdicts on a log's requests under the rules of a domain.

    The times of a log are decimals, which floats of seconds cannot represent; floats of milliseconds can. So rules and
    times are in units of 1/`_UNITS` s, and a request exactly at its release is not treated as one before it.
    """

    def __init__(self, rules: Sequence[Rule], algorithm: AlgorithmName, *, max_delay: float) -> None:
        self._rules = [str(rule) for rule in rules]
        scaled = [Rule(rule.count, rule.period_ms * _UNITS, rule.burst) for rule in rules]
        self._gate = OfflineGate(scaled, algorithm, max_delay=max_delay * _UNITS)
        self._delayed: Counter[bytes] = Counter()
        self._rejected: Counter[bytes] = Counter()
        self._longest = 0.0

    def play(self, log: RequestLog, advance: Advance | None = None) -> None:
        """Judge the requests of each identifier in time order; `advance` receives progress now and then."""
        gate, pending, is_spread = self._gate, 0, log.has_whole_seconds
        for identifier, times in log:
            if len(times) > gate.always_accepted:
                moments = _spread(times) if is_spread else sorted(times)
                verdicts = gate.judge_all([round(seconds * _UNITS, _DIGITS) for seconds in moments])
                if verdicts.delayed or verdicts.rejected:
                    self._delayed[identifier], self._rejected[identifier] = verdicts.delayed, verdicts.rejected
                    self._longest = max(self._longest, verdicts.longest_delay)
            pending += len(times)
            if pending >= _STEP and advance is not None:
                advance(pending)
                pending = 0

    @property
    def rejected_clients(self) -> int:
        """The number of identifiers with a rejected request."""
        return sum(count > 0 for count in self._rejected.values())

    def report(self, log: RequestLog) -> ReplayReport:
        """Return the counts, and the identifiers held most often."""
        held = self._delayed + self._rejected
        worst = sorted(held, key=lambda identifier: (-held[identifier], identifier))[:_TOP]
        requests, delayed, rejected = len(log), self._delayed.total(), self._rejected.total()
        return ReplayReport(
            requests=requests,
            accepted=requests - delayed - rejected,
            delayed=delayed,
            rejected=rejected,
            identifiers=log.identifiers,
            malformed=log.malformed,
            top=[
                ReplayedIdentifier(decode_with_escapes(name), self._delayed[name], self._rejected[name])
                for name in worst
            ],
            rules=self._rules,
            max_delay=round(self._longest / _UNITS, 3),
            is_spread=log.has_whole_seconds,
        )


def _suggest(log: RequestLog, algorithm: AlgorithmName, max_delay: float) -> Replay:
    """Return the replay of the strictest rule that rejects requests of few clients, or of the least strict one."""
    for text in _SUGGESTED:
        outcome = Replay([Rule.parse(text)], algorithm, max_delay=max_delay)
        outcome.play(log)
        if outcome.rejected_clients <= _HELD_SHARE * log.identifiers + (log.identifiers >= _MANY):
            break
    return outcome


def _spread(times: Sequence[float]) -> list[float]:
    """Return whole seconds in order, with the requests of each second spread evenly over it."""
    counts = sorted(Counter(times).items())
    return [second + number / count for second, count in counts for number in range(count)]


def _parse_draw(text: str) -> float:
    draw = number("a number")(text)
    if draw >= 1:
        raise ConfigurationError(f"must be a number of at least 0 and less than 1, got {text!r}")
    return draw


@click.command()
@click.option(
    "--rule",
    "rules",
    metavar="RULE",
    multiple=True,
    help="Rule, such as '10/s burst 20'; repeatable: all rules apply. Without it, a rule is suggested.",
)
@click.option(
    "--algorithm",
    type=click.Choice(list(ALGORITHMS)),
    default="gcra",
    show_default=True,
    help="How requests are counted.",
)
@click.option(
    "--max-delay",
    type=SECONDS,
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="Maximum delay in seconds; requests that would wait longer are rejected.",
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="auto", show_default=True, help="Format of the log."
)
@click.option(
    "--identify",
    "field",
    metavar="FIELD",
    help="Field that identifies clients: host, user, agent …; in JSON any key.  [default: host, in JSON identifier]",
)
@click.option("--domain", metavar="NAME", help="Only requests of this domain, in the access log of a gate.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--verbose", is_flag=True, help="Print each malformed line on stderr.")
@click.option("--throttle", is_flag=True, help="Apply an agent's throttle instead of a rule.")
@click.option(
    "--policy", type=click.Choice(list(_POLICIES)), default="draft", show_default=True, help="Backoff policy."
)
@click.option("--jitter", type=_JITTER, metavar="FACTOR", help="Jitter factor; by default that of the policy.")
@click.option(
    "--draw",
    type=Parsed("number", _parse_draw),
    metavar="NUMBER",
    help="Result of every random draw, 0 or more and less than 1; random by default.",
)
@click.argument("file", metavar="FILE|-")
@click.pass_context
def replay(
    context: click.Context,
    *,
    rules: tuple[str, ...],
    algorithm: AlgorithmName,
    max_delay: float,
    form: str,
    field: str | None,
    domain: str | None,
    as_json: bool,
    verbose: bool,
    throttle: bool,
    policy: str,
    jitter: float | None,
    draw: float | None,
    file: str,
) -> None:
    """Apply a rule, or the throttle, to a log, and print the result.

    Without --rule, the result is that of a suggested rule: the strictest of 1/s burst 2 to 1000/s burst 2000 that
    rejects requests of at most one client in a hundred; in a log of ten clients or more, of one more.

    FILE is the access log of a gate or another server, in the Common or Combined format, or JSON lines with "time"
    (seconds since 1970, or ISO 8601) and "identifier"; in any order, plain or gzip; - reads standard input. If all
    times are whole seconds, the requests of a client in a second are spread evenly over it.

    A rule applies to every request of FILE. Conditions of a configuration, such as path_prefix, methods or user_agent,
    are not read: for the rules of a domain that has any, name it with --domain, and the requests are those that the
    gate has logged under it. A log without domains cannot be divided by conditions.

    \b
    headgate replay /var/log/nginx/access.log
    headgate replay --rule '10/s burst 20' /var/log/nginx/access.log
    headgate replay --rule '600 per 10min' --identify user --json access.log.gz

    With --throttle, FILE has JSON lines with "t" (seconds since 1970): a response with "url", "status" and "headers",
    a query with "url" only, or "gesture": true. For each, a JSON line has the decision of an agent's throttle.

    \b
    headgate replay --throttle --policy draft --jitter 0 responses.jsonl
    """
    _check_options(context)
    if throttle:
        _replay_throttle(file, policy=policy, jitter=jitter, draw=draw)
        return
    checked = Domain("replay", tuple(map(Rule.parse, rules)), algorithm)
    log = _read_log(file, parser(form, field, domain), verbose=verbose)
    if rules:
        outcome = Replay(checked.rules, algorithm, max_delay=max_delay)
        with progress("replaying", len(log)) as advance:
            outcome.play(log, advance)
    else:
        outcome = _suggest(log, algorithm, max_delay)
    report = outcome.report(log)
    if report.requests and not (rules or as_json):
        click.echo(f"suggested rule: {report.rules[0]}\n")
    click.echo(msgspec.json.encode(report) if as_json else _table(report))
    if not report.requests and report.malformed:
        click.echo(f"headgate: {file}: no valid line; {log.first_malformed or log.damage}", err=True)
        exit_with_failure()


def _check_options(context: click.Context) -> None:
    """Raise `UsageError` for options of the other mode."""
    throttle = context.params["throttle"]
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in (_OF_RULES if throttle else _OF_THROTTLE):
            goes = "cannot be used with" if throttle else "requires"
            raise click.UsageError(f"{parameter.opts[0]} {goes} --throttle", context)


def _read_log(file: str, line_parser: Parser, *, verbose: bool) -> RequestLog:
    """Read the requests of a log; print what is malformed, and with `verbose` each malformed line."""
    log = RequestLog()
    print_line = (lambda sentence: click.echo(f"{file}: {sentence}", err=True)) if verbose else None
    with open_log(file) as source, progress("reading", _size(file)) as advance:
        log.read(_watched(source, advance), line_parser, print_line)
    if log.damage:
        click.echo(f"headgate: {file}: {log.damage}", err=True)
    return log


def _size(file: str) -> int | None:
    """Return the size of a file in bytes, None for standard input."""
    return None if file == "-" else Path(file).stat().st_size or None


def _watched(source: BinaryIO, advance: Advance) -> Iterator[list[bytes]]:
    """Yield the lines of `source` in lists; pass the number of bytes read to `advance`."""
    position = 0
    for batch in batches(decompressed(source)):
        if source.seekable():
            last, position = position, source.tell()
            advance(position - last)
        yield batch


def _table(report: ReplayReport) -> str:
    """Format the report as text."""
    counts = [(name, getattr(report, name)) for name in ("requests", "accepted", "delayed", "rejected")]
    width = len(str(max(report.requests, report.malformed, report.identifiers)))
    rows = []
    for name, count in counts:
        share = f"  {count / report.requests:7.2%}" if report.requests and name != "requests" else ""
        rows.append(f"{name:<14}{count:>{width}}{share}")
    rows.append(f"{'identifiers':<14}{report.identifiers:>{width}}")
    rows.append(f"{'malformed':<14}{report.malformed:>{width}}" + ("  lines" if report.malformed else ""))
    rows.append(f"{'longest delay':<14}{report.max_delay:.3f} s")
    if report.is_spread:
        rows.append("The log has whole seconds: requests are spread evenly over each second.")
    if report.top:
        names = [shorten(held.identifier) for held in report.top]
        column = max(len("most held"), *map(len, names))
        rows += ["", f"{'most held':<{column}}  {'delayed':>9}  {'rejected':>9}"]
        for name, held in zip(names, report.top, strict=True):
            rows.append(f"{name:<{column}}  {held.delayed:>9}  {held.rejected:>9}")
    return "\n".join(rows)


class _Line(msgspec.Struct):
    """A line of the log: a response has a status, a query only a URL, a gesture neither."""

    t: int | float
    url: str | None = None
    status: Annotated[int, msgspec.Meta(ge=100, le=999)] | None = None
    headers: dict[str, str | int] = {}
    gesture: bool = False


_decode = msgspec.json.Decoder(_Line).decode


def _replay_throttle(file: str, *, policy: str, jitter: float | None, draw: float | None) -> None:
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
    if not text.lstrip().startswith(b"{"):  # such as an access log
        raise Malformed(f"not a JSON object; expected a line such as {_EXAMPLE}")
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
