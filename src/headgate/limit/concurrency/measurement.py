"""What is measured of an origin: the windows in which requests end, and what several of them say of one limit."""

from collections.abc import Mapping
from math import fsum
from typing import Final, NamedTuple

from headgate.limit.concurrency.baseline import Baseline

FULL: Final = 0.9
"""The limit is reached when this share of it is in flight: between two requests, a place is free for a moment."""


class DomainWindow:
    """The requests of one domain that ended in the current window: only sums, since each request updates them."""

    __slots__ = ("answered", "baseline", "full", "in_flight", "loaded", "loaded_seconds", "seconds", "slow", "timeouts")

    def __init__(self) -> None:
        self.baseline = Baseline()
        self.clear()

    def clear(self) -> None:
        """Begin a new window."""
        self.answered = self.timeouts = self.slow = 0
        self.seconds = 0.0
        """The sum of the latencies of the responses."""
        self.loaded, self.loaded_seconds = 0, 0.0
        """The responses that ended while more than half of the limit was in flight, and the sum of their latencies."""
        self.in_flight = 0
        """The sum, at the end of each request, of how many were in flight, itself included."""
        self.full = 0
        """The requests that ended while the limit was reached."""


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
    """Those that took longer than the healthy latency, timeouts included."""
    work: float
    """The sum of the baselines of the responses: the seconds in flight that they need if there is no queue."""
    latencies: Mapping[str, tuple[float, int]]
    """The sum and the number of the latencies of each domain."""

    @property
    def answered(self) -> int:
        """The number of responses."""
        return self.requests - self.timeouts


def close_window(domains: Mapping[str, DomainWindow], seconds: float) -> Window:
    """Return what was collected since the last call, teach it to the baselines, and begin a new window."""
    requests = in_flight = full = timeouts = slow = 0
    work, sums = 0.0, {}
    for name, domain in domains.items():
        answered = domain.answered
        requests += answered + domain.timeouts
        in_flight += domain.in_flight
        full += domain.full
        timeouts += domain.timeouts
        slow += domain.slow
        if answered:
            unloaded, unloaded_seconds = answered - domain.loaded, domain.seconds - domain.loaded_seconds
            elapsed = 0.0 if domain.full else seconds
            domain.baseline.add(domain.seconds, answered, unloaded_seconds, unloaded, elapsed)
            work += domain.baseline.mean * answered
            sums[name] = (domain.seconds, answered)
        domain.clear()
    return Window(seconds, requests, in_flight / requests, full / requests, timeouts, slow, work, sums)


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
