"""What gatekeepers on the simulated bus admit of given requests; the result depends on the arguments only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from headgate.lab.events.bus import REQUEST, Bus, BusSettings
from headgate.lab.events.timeline import Timeline
from headgate.limit import Rule
from headgate.release import Status

START = 1_000.0
"""Seconds; small, so that rounding errors of floats are below a nanosecond."""

_IDENTIFIER = b"client"


class Arrival(NamedTuple):
    """A request: the seconds since the start, and the number of the gatekeeper that receives it."""

    time: float
    gatekeeper: int


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


def simulate(settings: BusSettings, arrivals: Iterable[Arrival]) -> Outcome:
    """Send the requests, in ascending order of time, through the gatekeepers; return the verdicts."""
    timeline, outcome = Timeline(START), Outcome()
    bus = Bus(settings, timeline, Random(1).random)

    def arrive(arrival: Arrival) -> None:
        accounting = bus.admit(arrival.gatekeeper, _IDENTIFIER)
        if accounting.status is Status.REJECTED:
            outcome.rejected += 1
            return
        outcome.accepted += accounting.status is Status.ACCEPTED
        outcome.delayed += accounting.status is Status.DELAYED
        outcome.releases.append(accounting.release - START)

    for arrival in arrivals:
        timeline.schedule(START + arrival.time, arrive, arrival, rank=REQUEST)
        timeline.run_through(START + arrival.time)
    outcome.controls = bus.controls
    return outcome
