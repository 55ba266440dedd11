"""Gatekeepers and a master in simulated time: the real cores, and messages that take a fixed time.

The *control delay* is the time from a gatekeeper's decision on a request to the moment when every gatekeeper obeys the
control that follows from it. It is the time for which a batch waits, and two equal ways: that of the accounting message
and that of the control message. Timestamps are rounded as on the wire. The result depends on the arguments only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Literal, NamedTuple

from msgspec.structs import replace

from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.gatekeeper import spacing
from headgate.limit.history import AlgorithmName
from headgate.limit.messages import to_milliseconds
from headgate.link.gatekeeper import ControlHandler
from headgate.release import ASAP, Status

START = 1_000.0
"""Seconds; small, so that rounding errors of floats are below a nanosecond."""

Local = Literal["nothing", "own rule", "spaced controls"]
"""What a gatekeeper does besides obeying: apply the rule to its own requests too, or space controls by the interval."""

_IDENTIFIER = b"client"
_NO_LIMIT = 1_000_000_000


class Arrival(NamedTuple):
    """A request: the seconds since the start, and the number of the gatekeeper that receives it."""

    time: float
    gatekeeper: int


@dataclass(frozen=True)
class Bus:
    """What is simulated: one rule, one identifier, and the delays between its gatekeepers and their master."""

    rule: Rule
    algorithm: AlgorithmName
    gatekeepers: int = 1
    control_delay: float = 0.0
    """Seconds from a decision to the obeyed control, at most."""
    batch_delay: float = 0.0
    """The part of it for which the first verdict of a batch waits for more; 0 for one message per verdict."""
    max_delay: float = 0.0
    rules_are_known: bool = True
    """Whether the gatekeepers have the rule, and space delayed requests by it."""
    local: Local = "nothing"
    loss: float = 0.0
    """The share of the accounting messages that are lost, at random."""


@dataclass
class Outcome:
    """The verdicts, and when the admitted requests were forwarded, in seconds since the start."""

    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
    controls: int = 0
    releases: list[float] = field(default_factory=list)

    def admitted(self, seconds: float) -> int:
        """Return the number of requests forwarded until `seconds` after the start."""
        return sum(release <= seconds for release in self.releases)

    def excess(self, rule: Rule, seconds: float) -> float:
        """Return the maximum, over all instants until `seconds`, of the requests admitted beyond the rule."""
        return largest_excess(rule, (release for release in self.releases if release <= seconds))


def permitted(rule: Rule, seconds: float) -> float:
    """Return the number of requests that the rule permits within `seconds`: rate × time + burst."""
    return seconds / rule.interval + rule.burst


def largest_excess(rule: Rule, releases: Iterable[float]) -> float:
    """Return by how much the number of requests forwarded at `releases` exceeds the rule, at the worst instant."""
    counted = enumerate(sorted(releases), start=1)
    return max((number - permitted(rule, release) for number, release in counted), default=-float(rule.burst))


def evenly(rate: float, seconds: float, gatekeepers: int) -> list[Arrival]:
    """Return requests at equal intervals, spread over the gatekeepers in turn."""
    return [Arrival(number / rate, number % gatekeepers) for number in range(int(rate * seconds))]


def randomly(rate: float, seconds: float, gatekeepers: int, seed: int) -> list[Arrival]:
    """Return requests of a Poisson process, each for a random gatekeeper."""
    random, arrivals, time = Random(seed), [], 0.0
    while (time := time + random.expovariate(rate)) < seconds:
        arrivals.append(Arrival(time, random.randrange(gatekeepers)))
    return arrivals


def in_bursts(rate: float, seconds: float, gatekeepers: int, size: int) -> list[Arrival]:
    """Return requests in bursts of `size` at one instant, spread over the gatekeepers."""
    bursts = int(rate * seconds / size)
    return [Arrival(burst * size / rate, number % gatekeepers) for burst in range(bursts) for number in range(size)]


def most_within(arrivals: Sequence[Arrival], seconds: float) -> int:
    """Return the maximum number of requests that arrive within `seconds`, both ends included."""
    first = most = 0
    for last, arrival in enumerate(arrivals):
        while arrivals[first].time < arrival.time - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def simulate(bus: Bus, arrivals: Iterable[Arrival]) -> Outcome:
    """Send the requests, in ascending order of time, through the gatekeepers; return the verdicts."""
    return _World(bus).run(arrivals)


class _World:
    """The cores, and the messages on their way."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._random = Random(1)
        self._way = (bus.control_delay - bus.batch_delay) / 2
        self._domain = Domain("api", (bus.rule,), bus.algorithm)
        self._master = Master([self._domain])
        self._outcome = Outcome()
        # By time. At one instant, controls (0) come before accounting (1), so that what arrives then is obeyed.
        self._events: list[tuple[float, int, int, Callable[[float], None]]] = []
        self._scheduled = 0
        self._gatekeepers = [self._new_gatekeeper() for _ in range(bus.gatekeepers)]
        self._handlers: list[ControlHandler] = list(self._gatekeepers)
        if bus.local == "spaced controls":
            self._handlers = [SpacedControls(gatekeeper, bus.rule) for gatekeeper in self._gatekeepers]

    def run(self, arrivals: Iterable[Arrival]) -> Outcome:
        outcome = self._outcome
        for arrival in arrivals:
            now = START + arrival.time
            while self._events and self._events[0][0] <= now:
                time, _, _, happen = heappop(self._events)
                happen(time)
            self._forget(now)
            accounting = self._gatekeepers[arrival.gatekeeper].admit("api", _IDENTIFIER, now=now)
            if accounting.status is Status.REJECTED:
                outcome.rejected += 1
                continue
            outcome.accepted += accounting.status is Status.ACCEPTED
            outcome.delayed += accounting.status is Status.DELAYED
            outcome.releases.append(accounting.release - START)
        return outcome

    def _forget(self, now: float) -> None:
        """Drop what has expired as soon as that is possible, as a server does several times per second."""
        self._master.forget(now=now)
        for gatekeeper in self._gatekeepers:
            gatekeeper.forget(now=now)

    def _new_gatekeeper(self) -> Gatekeeper:
        bus, waiting = self._bus, list[Accounting]()

        def send(now: float) -> None:
            if self._random.random() >= bus.loss:
                self._schedule(now + self._way, 1, partial(self._account, waiting.copy()))
            waiting.clear()

        def account(accounting: Accounting, now: float) -> None:
            waiting.append(accounting)
            if len(waiting) == 1:  # the first of a batch waits for more
                self._schedule(now + bus.batch_delay, 1, send) if bus.batch_delay else send(now)

        return Gatekeeper(
            account,
            master=Master([self._domain]) if bus.local == "own rule" else None,
            max_delay=bus.max_delay,
            max_delayed=_NO_LIMIT,
            spacing=spacing([self._domain]) if bus.rules_are_known else None,
        )

    def _schedule(self, time: float, order: int, happen: Callable[[float], None]) -> None:
        self._scheduled += 1
        heappush(self._events, (time, order, self._scheduled, happen))

    def _account(self, batch: Sequence[Accounting], now: float) -> None:
        for accounting in batch:
            received, release = _on_wire(accounting.received), _on_wire(accounting.release)
            control = self._master.account(replace(accounting, received=received, release=release), now)
            if control is not None:
                self._outcome.controls += 1
                control = replace(control, release=_on_wire(control.release))
                self._schedule(now + self._way, 0, partial(self._obey, control))

    def _obey(self, control: DelayUntil, now: float) -> None:
        for handler in self._handlers:
            handler.obey(control, now=now)


class SpacedControls:
    """Takes a control within one interval of the previous one as evidence of a request beyond the rule."""

    def __init__(self, gatekeeper: Gatekeeper, rule: Rule) -> None:
        self._gatekeeper = gatekeeper
        self._interval = rule.interval
        self._latest = self._release = ASAP

    def obey(self, control: DelayUntil, /, *, now: float) -> None:
        """Hold the identifier for one interval more than by the previous control."""
        if control.release > self._latest:
            self._latest = control.release
            self._release = max(control.release, self._release + self._interval)
            self._gatekeeper.obey(replace(control, release=self._release), now=now)


def _on_wire(instant: float) -> float:
    return to_milliseconds(instant) / 1_000.0
