"""The windows in which requests of each domain end: sums only, since each request updates them."""

from typing import Final

from headgate.limit.concurrency.learned.baseline import Baseline
from headgate.limit.concurrency.learned.measurement import Measurement, Window

FULL: Final = 0.9
"""The limit is reached when this share of it is in flight: between two requests, a place is free for a moment.

Chosen; 0.8 and 1.0 tried: no effect within chance on steps, starts and loads of 0.9.
"""


class DomainWindow:
    """The requests of one domain that ended in the current window, and the domain's baseline."""

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


class DomainWindows:
    """The windows and the baselines of all domains."""

    def __init__(self) -> None:
        self.windows: dict[str, DomainWindow] = {}
        """By the name of the domain."""

    def close(self, seconds: float) -> Window:
        """Return what was collected since the last call, teach it to the baselines, and begin a new window."""
        requests = in_flight = full = timeouts = slow = 0
        work, sums = 0.0, {}
        for name, domain in self.windows.items():
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

    @property
    def has_estimate(self) -> bool:
        """Whether the baseline of any domain tells a queue."""
        return any(domain.baseline.is_estimated for domain in self.windows.values())

    def are_known(self, measurement: Measurement) -> bool:
        """Return whether most responses are of domains whose baselines met no queue."""
        counts = {name: count for name, (_, count) in measurement.latencies.items()}
        known = sum(count for name, count in counts.items() if self.windows[name].baseline.is_known)
        return known >= sum(counts.values()) / 2

    def learn(self, measurement: Measurement, *, known: bool) -> None:
        """Take the latencies of a measurement as the baselines; it may be known that they met no queue."""
        for name, (seconds, count) in measurement.latencies.items():
            self.windows[name].baseline.replace(seconds / count, count, known=known)
