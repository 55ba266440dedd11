"""What is measured: signals for each sample, and metrics of the time after the warm-up.

A request counts by its cost: its mean service time as a multiple of the station's. Rates (`offered`, `goodput`,
`refused`, `late`, `failed`) are multiples of the capacity that the station has at that time: a goodput of 1 is all that
it can serve. Latencies are the seconds from a request's arrival at the gate to the end of its service, its time in the
law's queue included; those of requests whose client has given up meanwhile count, too.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

from lab.events.request import Answer, Request
from lab.ranges import quantile
from lab.results import Metric, Metrics, Series

RATES: Mapping[str, Answer] = {
    "goodput": Answer.SERVED,
    "refused": Answer.REFUSED,
    "late": Answer.LATE,
    "failed": Answer.FAILED,
}
"""The signals and metrics that are rates, and which ends of requests they count."""


class Counts:
    """What has been counted in one interval."""

    def __init__(self) -> None:
        self.offered = 0.0
        """Requests that reached the gate, each counted by its cost."""
        self.answers: Counter[tuple[str, Answer]] = Counter()
        """Ends of requests, as the clients see them, by flow."""
        self.costs: dict[tuple[str, Answer], float] = defaultdict(float)
        """Likewise, each counted by its cost."""
        self.latencies: dict[str, list[float]] = {}
        """By flow."""
        self.work = 0.0
        """The number of requests that the station could have served."""
        self.seconds = 0.0
        self.in_flight = 0.0
        """The mean, multiplied by the seconds; likewise `utilisation`."""
        self.utilisation = 0.0
        self.maximum = 0.0
        """The most requests in flight."""

    def add(self, other: "Counts") -> None:
        """Add what a later interval has counted."""
        self.offered += other.offered
        self.answers.update(other.answers)
        for end, cost in other.costs.items():
            self.costs[end] += cost
        for flow, latencies in other.latencies.items():
            self.latencies.setdefault(flow, []).extend(latencies)
        self.work += other.work
        self.seconds += other.seconds
        self.in_flight += other.in_flight
        self.utilisation += other.utilisation
        self.maximum = max(self.maximum, other.maximum)

    def rates(self, flows: Iterable[str]) -> dict[str, float]:
        """Return the rates as multiples of the capacity, and the goodput of each flow."""
        rates = {"offered": self.offered / self.work}
        for name, answer in RATES.items():
            rates[name] = sum(cost for (_, end), cost in self.costs.items() if end is answer) / self.work
        return rates | {f"goodput.{flow}": self.costs.get((flow, Answer.SERVED), 0.0) / self.work for flow in flows}


class Meter:
    """Collects counts; `sample` ends an interval."""

    def __init__(self, flows: Iterable[str], *, warmup: float, record: bool) -> None:
        self.current = Counts()
        """The interval that has begun last."""
        self._flows = list(flows)
        self._warmup = warmup
        self._record = record
        self._measured = Counts()
        self._times: list[float] = []
        self._values: dict[str, list[float]] = {}

    def served(self, request: Request, latency: float) -> None:
        """Count the end of a service, `latency` seconds after the request's arrival at the gate."""
        latencies = self.current.latencies.get(request.flow)
        if latencies is None:
            latencies = self.current.latencies[request.flow] = []
        latencies.append(latency)

    def ended(self, request: Request, answer: Answer) -> None:
        """Count the end of a request."""
        self.current.answers[request.flow, answer] += 1
        self.current.costs[request.flow, answer] += request.cost

    def sample(self, start: float, law: Mapping[str, float]) -> None:
        """End the interval that began at `start`; `law` has the law's signals at its end."""
        counts, self.current = self.current, Counts()
        if start >= self._warmup:
            self._measured.add(counts)
        if self._record:
            self._times.append(start)
            for name, value in (_signals(counts, self._flows) | dict(law)).items():
                self._values.setdefault(name, []).append(value)

    def series(self) -> Series:
        """Return the recorded signals."""
        return Series(self._times, self._values)

    def metrics(self) -> Metrics:
        """Return the metrics of the measured time.

        `success` is the share of the requests that ended with an answer in time, in total and of each flow; NaN if
        none ended. A latency is the whole measured time if no request was served.
        """
        counts = self._measured
        metrics: dict[str, Metric] = dict(counts.rates(self._flows))
        metrics["success"] = _success(counts.answers, self._flows)
        for flow in self._flows:
            metrics[f"success.{flow}"] = _success(counts.answers, [flow])
        for name, share in (("latency_p50", 0.5), ("latency_p99", 0.99)):
            metrics[name] = _latency(counts, self._flows, share)
        for flow in self._flows:
            metrics[f"latency_p99.{flow}"] = _latency(counts, [flow], 0.99)
        metrics["in_flight"] = counts.in_flight / counts.seconds
        metrics["max_in_flight"] = counts.maximum
        metrics["utilisation"] = counts.utilisation / counts.seconds
        return metrics


def _signals(counts: Counts, flows: Iterable[str]) -> dict[str, float]:
    signals = counts.rates(flows)
    signals["capacity"] = counts.work / counts.seconds
    latencies = list(chain.from_iterable(counts.latencies.values()))
    signals["latency_p50"] = quantile(latencies, 0.5)
    signals["latency_p99"] = quantile(latencies, 0.99)
    signals["in_flight"] = counts.in_flight / counts.seconds
    signals["max_in_flight"] = counts.maximum
    signals["utilisation"] = counts.utilisation / counts.seconds
    return signals


def _latency(counts: Counts, flows: Iterable[str], share: float) -> float:
    latencies = [latency for flow in flows for latency in counts.latencies.get(flow, ())]
    return quantile(latencies, share) if latencies else counts.seconds


def _success(answers: Mapping[tuple[str, Answer], int], flows: Iterable[str]) -> float:
    chosen = set(flows)
    ended = [(answer, count) for (flow, answer), count in answers.items() if flow in chosen]
    total = sum(count for _, count in ended)
    return sum(count for answer, count in ended if answer is Answer.SERVED) / total if total else math.nan
