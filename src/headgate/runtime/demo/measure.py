"""What the clients of the demonstration count, and the figures of a phase. No clock, no socket."""

from typing import Final

import msgspec

from headgate.runtime.demo.plan import PhaseName

_STEP: Final = 0.005
"""Seconds: the resolution of a delay."""
_P99: Final = 0.99


class Tally(msgspec.Struct):
    """Counts of requests since a client process began."""

    offered: int = 0
    """Requests that clients wanted to send."""
    sent: int = 0
    """Those that were sent; the others were held by advice or by `Retry-After`, or refused by a prefetch proxy."""
    served: int = 0
    """Those answered with success before the client gave up."""
    lost: int = 0
    """Those refused, failed or given up, and those held."""
    delays: dict[int, int] = {}
    """How many of the served took so many steps of 5 ms."""

    def add_served(self, seconds: float) -> None:
        """Count a response that took so many seconds."""
        self.served += 1
        step = int(seconds / _STEP)
        self.delays[step] = self.delays.get(step, 0) + 1

    def minus(self, earlier: "Tally") -> "Tally":
        """Return what was counted after an earlier state of the same tally."""
        delays = {step: count - earlier.delays.get(step, 0) for step, count in self.delays.items()}
        return Tally(
            self.offered - earlier.offered,
            self.sent - earlier.sent,
            self.served - earlier.served,
            self.lost - earlier.lost,
            {step: count for step, count in delays.items() if count},
        )

    def plus(self, other: "Tally") -> "Tally":
        """Return the sum of two tallies."""
        delays = dict(self.delays)
        for step, count in other.delays.items():
            delays[step] = delays.get(step, 0) + count
        return Tally(
            self.offered + other.offered,
            self.sent + other.sent,
            self.served + other.served,
            self.lost + other.lost,
            delays,
        )

    @property
    def served_part(self) -> float:
        """The part of the ended requests that was served; 1 if none has ended."""
        ended = self.served + self.lost
        return self.served / ended if ended else 1.0

    def p99(self, deadline: float) -> float:
        """Return the 99th percentile of the delays in seconds; a lost request counts as the whole `deadline`."""
        left = _P99 * (self.served + self.lost)
        for step, count in sorted(self.delays.items()):
            left -= count
            if left <= 0.0:
                return min((step + 1) * _STEP, deadline)
        return deadline if self.lost else 0.0


class Visit:
    """Counts the requests of one visit in the tally of all, each when it happens."""

    def __init__(self, tally: Tally, requests: int) -> None:
        self._tally = tally
        self._left = requests
        tally.offered += requests

    def sent(self) -> None:
        """Count a request that is sent."""
        self._tally.sent += 1

    def served(self, seconds: float) -> None:
        """Count a response in time, after so many seconds."""
        self._left -= 1
        self._tally.add_served(seconds)

    def end(self) -> None:
        """Count the requests that got no response in time as lost."""
        self._tally.lost += self._left
        self._left = 0


class PhaseResult(msgspec.Struct, frozen=True):
    """The figures of one phase."""

    name: PhaseName
    offered: float
    """Requests per second that clients wanted to send."""
    capacity: float
    """Requests per second that the origin can serve."""
    goodput: float
    """Responses per second that arrived before the client gave up."""
    people_served: float
    """The part of the requests of people that was served."""
    people_p99_ms: float
    """The 99th percentile of how long people waited: for a response, or until the deadline if they got none."""
    fraction: float | None
    """The published fraction of automated traffic at the end of the phase; None without a gate."""


def phase_result(
    name: PhaseName,
    everyone: Tally,
    people: Tally,
    *,
    seconds: float,
    capacity: float,
    deadline: float,
    fraction: float | None,
) -> PhaseResult:
    """Return the figures of a phase from what was counted in it."""
    return PhaseResult(
        name,
        offered=round(everyone.offered / seconds, 1),
        capacity=capacity,
        goodput=round(everyone.served / seconds, 1),
        people_served=round(people.served_part, 4),
        people_p99_ms=round(1000 * people.p99(deadline)),
        fraction=fraction,
    )
