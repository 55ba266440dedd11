"""The state of the concurrency limit of a gate: summed over workers, and written as metrics."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headgate.limit.concurrency import PRIORITIES, ConcurrencyState, LimitReason, Priority, Reason


class ConcurrencyReport(msgspec.Struct, frozen=True):
    """A concurrency limit, or the sum of those of several workers.

    In monitor mode, the requests that wait and those refused are those that would be.
    """

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
    overloaded: bool = False
    """Whether requests have waited for so long that the origin is overloaded."""
    capacity: float = 0.0
    """Requests per second that the origin was seen to answer at most; 0 if not known."""
    waiting: dict[Priority, int] = {}
    """Requests that wait, by their priority."""
    refused: dict[Priority, dict[str, int]] = {}
    """Requests refused so far, by their priority and the reason."""
    changes: dict[str, int] = {}
    """How often a learned limit was changed so far, or kept after a trial, by the reason."""
    refused_for: dict[Priority, float] = {}
    """Seconds for which most requests have been refused, by their priority; of several workers, the longest."""

    @classmethod
    def of(cls, state: ConcurrencyState, refused_for: Mapping[Priority, float]) -> "ConcurrencyReport":
        """Make the report of one limit."""
        return cls(
            limit=state.limit,
            in_flight=state.in_flight,
            queued=state.queued,
            mode=state.mode,
            reason=state.reason,
            baseline=state.baseline,
            overloaded=state.overloaded,
            capacity=state.capacity,
            waiting=dict(state.waiting),
            refused={priority: dict(reasons) for priority, reasons in state.refused.items()},
            changes=dict(state.changes),
            refused_for={priority: round(seconds, 3) for priority, seconds in refused_for.items()},
        )

    @property
    def totals(self) -> "ConcurrencyReport":
        """What remains of it when its worker has ended: the totals."""
        return ConcurrencyReport(0.0, 0, 0, self.mode, "", 0.0, refused=self.refused, changes=self.changes)


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
        overloaded=any(report.overloaded for report in found),
        capacity=sum(report.capacity for report in found),
        waiting={name: sum(report.waiting.get(name, 0) for report in found) for name in PRIORITIES},
        refused={
            name: {
                reason.value: sum(report.refused.get(name, {}).get(reason.value, 0) for report in found)
                for reason in Reason
            }
            for name in PRIORITIES
        },
        changes={reason.value: sum(report.changes.get(reason.value, 0) for report in found) for reason in LimitReason},
        refused_for={name: max(report.refused_for.get(name, 0.0) for report in found) for name in PRIORITIES},
    )


def concurrency_metrics(report: ConcurrencyReport | None) -> Iterator[Metric]:
    """Make the metrics of a concurrency limit; none without one."""
    if report is None:
        return
    yield GaugeMetricFamily("headgate_concurrency_limit", "Requests that may be in flight at the origin.", report.limit)
    yield _changes(report)
    yield GaugeMetricFamily("headgate_requests_in_flight", "Requests in flight at the origin.", report.in_flight)
    yield _by_priority("headgate_queued_requests", "Requests that wait for a place at the origin.", report.waiting)
    yield GaugeMetricFamily(
        "headgate_concurrency_overloaded", "Whether requests wait too long for a place: 1 or 0.", report.overloaded
    )
    yield GaugeMetricFamily(
        "headgate_concurrency_baseline_seconds",
        "Time to the head of a response at low load; 0 if not known.",
        report.baseline,
    )
    yield GaugeMetricFamily(
        "headgate_concurrency_capacity",
        "Requests per second that the origin was seen to answer at most; 0 if not known.",
        report.capacity,
    )
    yield _refused(report)
    yield _by_priority(
        "headgate_refused_class_seconds",
        "Time for which most requests of a class have been refused.",
        report.refused_for,
    )


def _by_priority(name: str, description: str, values: Mapping[Priority, float]) -> Metric:
    metric = GaugeMetricFamily(name, description, labels=["priority"])
    for priority in PRIORITIES:
        metric.add_metric([priority], values.get(priority, 0))
    return metric


def _changes(report: ConcurrencyReport) -> Metric:
    description = "Changes of the learned limit, and trials that kept it."
    metric = CounterMetricFamily("headgate_concurrency_limit_changes", description, labels=["reason"])
    for reason in LimitReason:
        metric.add_metric([reason.value], report.changes.get(reason.value, 0))
    return metric


def _refused(report: ConcurrencyReport) -> Metric:
    description = "Requests refused by the concurrency limit; in monitor mode those that would be."
    metric = CounterMetricFamily("headgate_refused_requests", description, labels=["priority", "reason"])
    for priority in PRIORITIES:
        for reason in Reason:
            metric.add_metric([priority, reason.value], report.refused.get(priority, {}).get(reason.value, 0))
    return metric
