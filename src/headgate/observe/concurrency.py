"""The state of the concurrency limit of a gate: summed over workers, and written as metrics."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.limit.concurrency import PRIORITIES, Priority


class ConcurrencyReport(msgspec.Struct, frozen=True):
    """A concurrency limit, or the sum of those of several workers."""

    limit: float
    """Requests that may be in flight at the origin at once."""
    in_flight: int
    """Requests that are in flight."""
    queued: int
    """Requests that wait for a place."""
    mode: Literal["off", "monitor", "enforce"]
    reason: str
    """Why the limit was changed last; of several workers, each reason once."""
    baseline: float
    """Seconds that responses take at low load; 0 if not known. Of several workers, the longest."""
    refused: dict[Priority, int] = {}
    """The number of requests refused, by their priority."""

    @property
    def totals(self) -> "ConcurrencyReport":
        """What remains of it when its worker has ended: the totals."""
        return ConcurrencyReport(0.0, 0, 0, self.mode, "", 0.0, self.refused)


def sum_reports(reports: Iterable[ConcurrencyReport | None]) -> ConcurrencyReport | None:
    """Return the sum of the limits of several workers; None without one."""
    found = [report for report in reports if report is not None]
    if len(found) < 2:
        return found[0] if found else None
    return ConcurrencyReport(
        limit=sum(report.limit for report in found),
        in_flight=sum(report.in_flight for report in found),
        queued=sum(report.queued for report in found),
        mode=found[-1].mode,
        reason=", ".join(dict.fromkeys(report.reason for report in found if report.reason)),
        baseline=max(report.baseline for report in found),
        refused={name: sum(report.refused.get(name, 0) for report in found) for name in PRIORITIES},
    )


def concurrency_metrics(report: ConcurrencyReport | None) -> Iterator[Metric]:
    """Make the metrics of a concurrency limit; none without one."""
    if report is None:
        return
    yield GaugeMetricFamily("headgate_concurrency_limit", "Requests that may be in flight at the origin.", report.limit)
    yield GaugeMetricFamily("headgate_requests_in_flight", "Requests in flight at the origin.", report.in_flight)
    yield GaugeMetricFamily("headgate_queued_requests", "Requests that wait for a place at the origin.", report.queued)
    yield GaugeMetricFamily(
        "headgate_concurrency_baseline_seconds",
        "Time to the head of a response at low load; 0 if not known.",
        report.baseline,
    )
    refused = CounterMetricFamily(
        "headgate_refused_requests", "Requests refused by the concurrency limit.", labels=["priority"]
    )
    for priority in PRIORITIES:
        refused.add_metric([priority], report.refused.get(priority, 0))
    yield refused
