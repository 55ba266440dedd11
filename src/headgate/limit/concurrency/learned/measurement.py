"""What several windows say of one limit, by Little's law."""

from collections.abc import Mapping
from math import fsum
from typing import Final, NamedTuple

from headgate.limit.concurrency.values import LimitReason

_LONG: Final = 0.2
"""Seconds of a window that may have a pause, which is two of the usual ones."""
_RECENT_TIMEOUTS: Final = 50
"""Requests over which the share of timeouts is averaged: in a single window, three of ten can be most by chance.

20 has the same effect within chance; with 100, and more so with longer windows, the limit falls later: to 9 instead of
5 places in 25 s in which all requests time out.
"""


class Window(NamedTuple):
    """The requests that ended in a short interval."""

    seconds: float
    requests: int
    in_flight: float
    """The mean at their ends."""
    full: float
    """The share of them that ended while the limit was reached."""
    timeouts: int
    slow: int
    """Those that took longer than the healthy latency, or while the limit grows than in the round before."""
    work: float
    """The sum of the baselines of the responses: the seconds in flight that they need if there is no queue."""
    latencies: Mapping[str, tuple[float, int]]
    """The sum and the number of the latencies of each domain."""

    @property
    def answered(self) -> int:
        """The number of responses."""
        return self.requests - self.timeouts

    @property
    def has_pause(self) -> bool:
        """Whether no request was in flight for a part of it: what it says is the demand, whatever the limit is.

        A request in flight for the whole time has a latency as long; so the limit was not reached if the sum is less.
        """
        is_long = self.seconds > _LONG and not self.timeouts
        return is_long and self.seconds > fsum(total for total, _ in self.latencies.values())


class Measurement:
    """The sum of the windows at one limit. By Little's law, a rate times a latency is a number in flight."""

    def __init__(self) -> None:
        self.requests = 0
        self.slow = 0
        self.latencies: dict[str, tuple[float, int]] = {}
        """The sum and the number of the latencies of each domain."""
        self.seconds = 0.0
        self._work = 0.0
        self._in_flight = 0.0
        self._answered = 0

    def add(self, window: Window) -> None:
        """Add a window."""
        self.requests += window.requests
        self.slow += window.slow
        self.seconds += window.seconds
        self._work += window.work
        self._in_flight += window.in_flight * window.seconds
        self._answered += window.answered
        for name, (seconds, count) in window.latencies.items():
            known, number = self.latencies.get(name, (0.0, 0))
            self.latencies[name] = (known + seconds, number + count)

    @property
    def in_flight(self) -> float:
        """The mean number of requests in flight."""
        return self._in_flight / self.seconds

    @property
    def rate(self) -> float:
        """Responses per second."""
        return self._answered / self.seconds

    @property
    def latency(self) -> float:
        """The mean latency of the responses in seconds; 0 without one."""
        return fsum(total for total, _ in self.latencies.values()) / max(1, self._answered)

    @property
    def busy(self) -> float:
        """The requests that would be in flight at this rate if there were no queue at the origin."""
        return self._work / self.seconds

    @property
    def responding(self) -> float:
        """The requests in flight that are answered in the end; the others keep their place until they time out."""
        seconds = fsum(total for total, _ in self.latencies.values())
        return min(self.in_flight, seconds / self.seconds) if self._answered < self.requests else self.in_flight

    @property
    def queueless(self) -> float:
        """The share of the latency that is not spent in a queue at the origin: 1 without a queue."""
        return self.busy / self.responding if self.responding else 0.0


class LimitPeriod:
    """The time for which one limit is in force, and what is measured in it."""

    def __init__(self, began: float, settled: float, turnover: int) -> None:
        self.began = began
        self.settled = settled
        """The instant at which what began with it has ended."""
        self.turnover = turnover
        """The number of requests that end before they show what the limit does."""
        self.measurement = Measurement()
        self.proposed: LimitReason | None = None
        """The reason for which the last measurement asked for a trial."""
        self.needed = 0
        """The requests of the next measurement before it is judged: the best of many looks is chance."""

    def restart(self) -> None:
        """Measure anew."""
        self.measurement = Measurement()
        self.proposed = None
        self.needed = 0


class RecentTimeouts:
    """The share of the last requests that timed out."""

    def __init__(self) -> None:
        self.share = 0.0

    def add(self, window: Window) -> None:
        """Take a window."""
        weight = window.requests / (window.requests + _RECENT_TIMEOUTS)
        self.share += (window.timeouts / window.requests - self.share) * weight
