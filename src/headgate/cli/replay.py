"""`headgate replay`: what a rule, or the throttle, would have done to a log.

The real gatekeeper and the real master decide, one request at a time and in time order, without a bus between them
and with no bound on how many are remembered or delayed.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as altered
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from headgate.cli import throttling
from headgate.cli.access_log import FORMATS, LONGEST_LINE, Malformed, Parse, decompressed, lines, opened, parser
from headgate.cli.flags import SECONDS
from headgate.cli.terminal import Advance, harmless, progress, sayable, shortened
from headgate.limit import Domain, Gatekeeper, Master, Rule
from headgate.limit.history import ALGORITHMS, AlgorithmName
from headgate.release import NEVER, Status

__all__ = ["Log", "Outcome", "Report", "Sufferer", "replay"]

_UNITS = 1_000
"""In a second of a replayed log."""
_DIGITS = 3
"""Of a unit that mean something: a float holds the microseconds of any date, and no more."""
_TOP = 10
_STEP = 65_536


class Sufferer(msgspec.Struct, frozen=True):
    """One identifier that was held, and how often."""

    identifier: str
    delayed: int
    rejected: int


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    requests: int
    accepted: int
    delayed: int
    rejected: int
    identifiers: int
    malformed: int
    top: list[Sufferer]
    max_delay: float
    """Seconds, to the nearest millisecond: the longest delay of a delayed request."""


class Log:
    """Requests as read: a time and an identifier each, twelve bytes a request besides the identifiers' own."""

    def __init__(self) -> None:
        self.identifiers: list[bytes] = []
        """Each identifier once, in the order first seen."""
        self.malformed = 0
        """Lines that could not be read."""
        self.damage = ""
        """Why the log ended before its end, in a sentence; empty for a log that did not."""
        self._numbers: dict[bytes, int] = {}
        self._times = array("d")
        self._who = array("L")
        self._ordered = True

    def __len__(self) -> int:
        """The number of requests."""
        return len(self._times)

    def read(self, source: Iterable[bytes], parse: Parse, tell: Callable[[str], None] | None = None) -> None:
        """Take every line of `source`; `tell` is given a sentence for each that cannot be read.

        Where the data itself is damaged, the rest of it counts as one such line, and `damage` says so.
        """
        number = 0
        try:
            for number, line in enumerate(source, start=1):
                text = line.strip()
                if not text:
                    continue
                try:
                    if len(text) > LONGEST_LINE:
                        raise Malformed(f"longer than {LONGEST_LINE} bytes")
                    self.add(*parse(text))
                except Malformed as error:
                    self.malformed += 1
                    if tell is not None:
                        tell(f"line {number}: {error}: {harmless(sayable(text[:80]))}")
        except Malformed as error:
            self.malformed += 1
            self.damage = f"after line {number} {error}; what came before it counts"

    def add(self, moment: float, identifier: bytes) -> None:
        """Take one request."""
        number = self._numbers.setdefault(identifier, len(self.identifiers))
        if number == len(self.identifiers):
            self.identifiers.append(identifier)
        if self._times and moment < self._times[-1]:
            self._ordered = False
        self._times.append(moment)
        self._who.append(number)

    def __iter__(self) -> Iterator[tuple[float, bytes]]:
        """Yield the requests in time order; those of one time as they stood."""
        order: Sequence[int] = range(len(self._times))
        if not self._ordered:
            order = sorted(order, key=self._times.__getitem__)
        times, who, identifiers = self._times, self._who, self.identifiers
        for at in order:
            yield times[at], identifiers[who[at]]


class Outcome:
    """What became of a log's requests under a domain's rules.

    A log's times are decimals, which floats of seconds are not; whole milliseconds they are. So here a second is
    `_UNITS` long, for the rules as for the times, and a request exactly at its release is not taken for one before it.
    """

    def __init__(self, domain: Domain, *, max_delay: float) -> None:
        self._domain = domain.name
        rules = tuple(Rule(rule.count, rule.period_ms * _UNITS, rule.burst) for rule in domain.rules)
        units = max_delay * _UNITS
        self._master = Master([altered(domain, rules=rules)], max_identifiers=sys.maxsize, max_delay=units)
        self._gatekeeper = Gatekeeper(
            master=self._master, max_delay=units, max_delayed=sys.maxsize, max_holds=sys.maxsize, max_hold=NEVER
        )
        self._delayed: Counter[bytes] = Counter()
        self._rejected: Counter[bytes] = Counter()
        self._longest = 0.0

    def play(self, log: Log, advance: Advance | None = None) -> None:
        """Let each request of `log` ask, in order; `advance` is told how many have, now and then."""
        admit, domain = self._gatekeeper.admit, self._domain
        for count, (seconds, identifier) in enumerate(log, start=1):
            moment = round(seconds * _UNITS, _DIGITS)
            accounting = admit(domain, identifier, now=moment)
            if accounting.status is Status.DELAYED:
                self._delayed[identifier] += 1
                self._longest = max(self._longest, accounting.wait)
            elif accounting.status is Status.REJECTED:
                self._rejected[identifier] += 1
            if not count % _STEP:
                self._gatekeeper.forget(now=moment)
                self._master.forget(now=moment)
                if advance is not None:
                    advance(_STEP)

    def report(self, log: Log) -> Report:
        """Give the counts, and the identifiers held most often."""
        held = self._delayed + self._rejected
        worst = sorted(held, key=lambda identifier: (-held[identifier], identifier))[:_TOP]
        delayed, rejected = self._delayed.total(), self._rejected.total()
        return Report(
            requests=len(log),
            accepted=len(log) - delayed - rejected,
            delayed=delayed,
            rejected=rejected,
            identifiers=len(log.identifiers),
            malformed=log.malformed,
            top=[Sufferer(sayable(name), self._delayed[name], self._rejected[name]) for name in worst],
            max_delay=round(self._longest / _UNITS, 3),
        )


@click.command()
@click.option("--rule", "rules", metavar="RULE", multiple=True, help="'10/s burst 20'; repeated: all hold.")
@click.option(
    "--algorithm", type=click.Choice(list(ALGORITHMS)), default="log", show_default=True, help="How it counts."
)
@click.option("--max-delay", type=SECONDS, default=5.0, show_default=True, help="Seconds; one held longer is rejected.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="auto", show_default=True, help="Of the log.")
@click.option(
    "--identify", "field", metavar="FIELD", help="host (default), user, agent …; of JSON any key (identifier)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--verbose", is_flag=True, help="Name on stderr each line that cannot be read.")
@throttling.flags
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
    as_json: bool,
    verbose: bool,
    throttle: bool,
    policy: str,
    jitter: float | None,
    draw: float | None,
    file: str,
) -> None:
    """Say what a rule, or the throttle, would have done to a log.

    FILE is an access log in the Common or Combined format, or JSON lines with "time" (seconds since 1970, or ISO
    8601) and "identifier"; in time order or not, plain or gzip; - reads standard input.

    \b
    headgate replay --rule '10/s burst 20' /var/log/nginx/access.log
    headgate replay --rule '600 per 10min' --identify user --json access.log.gz

    With --throttle, FILE has JSON lines with "t" (seconds since 1970): a response with "url", "status" and "headers",
    a question with "url" alone, or "gesture": true. For each a JSON line says what an agent's throttle would.

    \b
    headgate replay --throttle --policy draft --jitter 0 responses.jsonl
    """
    throttling.check_flags(context)
    if throttle:
        throttling.replay_throttle(file, policy=policy, jitter=jitter, draw=draw)
        return
    outcome = Outcome(Domain("replay", tuple(map(Rule.parse, rules)), algorithm), max_delay=max_delay)
    log = Log()
    parse = parser(form, field)
    tell = (lambda sentence: click.echo(f"{file}: {sentence}", err=True)) if verbose else None
    with opened(file) as source, progress("reading", _size(file)) as advance:
        log.read(_watched(source, advance), parse, tell)
    if log.damage:
        click.echo(f"headgate: {file}: {log.damage}", err=True)
    with progress("replaying", len(log)) as advance:
        outcome.play(log, advance)
    report = outcome.report(log)
    click.echo(msgspec.json.encode(report) if as_json else _table(report))


def _size(file: str) -> int | None:
    """Give the bytes of a plain file, None where nobody knows."""
    return None if file == "-" else Path(file).stat().st_size or None


def _watched(source: BinaryIO, advance: Advance) -> Iterator[bytes]:
    """Yield the lines of `source`, telling `advance` now and then how many bytes of the file they took."""
    told = 0
    for count, line in enumerate(lines(decompressed(source))):
        if not count % _STEP and source.seekable():
            position = source.tell()
            advance(position - told)
            told = position
        yield line


def _table(report: Report) -> str:
    """Write the report for people."""
    counts = [(name, getattr(report, name)) for name in ("requests", "accepted", "delayed", "rejected")]
    width = len(str(max(report.requests, report.malformed, report.identifiers)))
    rows = []
    for name, count in counts:
        share = f"  {count / report.requests:7.2%}" if report.requests and name != "requests" else ""
        rows.append(f"{name:<14}{count:>{width}}{share}")
    rows.append(f"{'identifiers':<14}{report.identifiers:>{width}}")
    rows.append(f"{'malformed':<14}{report.malformed:>{width}}" + ("  lines not read" if report.malformed else ""))
    rows.append(f"{'longest delay':<14}{report.max_delay:.3f} s")
    if report.top:
        names = [shortened(sufferer.identifier) for sufferer in report.top]
        column = max(len("most held"), *map(len, names))
        rows += ["", f"{'most held':<{column}}  {'delayed':>9}  {'rejected':>9}"]
        for name, sufferer in zip(names, report.top, strict=True):
            rows.append(f"{name:<{column}}  {sufferer.delayed:>9}  {sufferer.rejected:>9}")
    return "\n".join(rows)
