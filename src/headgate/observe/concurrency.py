"""The state of the concurrency limit of a gate: summed over workers, and written as metrics."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric

from headgate.limit.concurrency import PRIORITIES, ConcurrencyState, Reason
from headgate.observe.metrics import gauge


def ended_limit(state: ConcurrencyState) -> ConcurrencyState:
    """Return what remains of a limit when its worker has ended: the totals."""
    return ConcurrencyState(0.0, 0, 0, state.mode, rejected=state.rejected)


def sum_limits(states: Iterable[ConcurrencyState | None]) -> ConcurrencyState | None:
    """Return the sum of the limits of several workers; None without one."""
    found = [state for state in states if state is not None]
    if len(found) < 2:
        return found[0] if found else None
    return ConcurrencyState(
        limit=sum(state.limit for state in found),
        in_flight=sum(state.in_flight for state in found),
        queued=sum(state.queued for state in found),
        mode=found[-1].mode,
        latency=max(state.latency for state in found),
        overloaded=any(state.overloaded for state in found),
        capacity=sum(state.capacity for state in found),
        waiting={name: sum(state.waiting.get(name, 0) for state in found) for name in PRIORITIES},
        rejected={
            name: {
                reason.value: sum(state.rejected.get(name, {}).get(reason.value, 0) for state in found)
                for reason in Reason
            }
            for name in PRIORITIES
        },
    )


def concurrency_metrics(state: ConcurrencyState | None) -> Iterator[Metric]:
    """Make the metrics of a concurrency limit; none without one."""
    if state is None:
        return
    yield gauge("headgate_concurrency_limit", "Requests that may be in flight at the origin.", state.limit)
    yield gauge("headgate_requests_in_flight", "Requests in flight at the origin.", state.in_flight)
    waiting: dict[str, float] = {name: state.waiting.get(name, 0) for name in PRIORITIES}
    yield gauge("headgate_queued_requests", "Requests that wait for a permit.", waiting, "priority")
    yield gauge("headgate_concurrency_overloaded", "Whether requests wait too long: 1 or 0.", state.overloaded)
    text = "Mean time to recent responses, of a learned limit."
    yield gauge("headgate_concurrency_latency_seconds", text, state.latency)
    text = "Requests per second that the origin completes while others wait."
    yield gauge("headgate_concurrency_capacity", text, state.capacity)
    text = "Requests rejected by the concurrency limit; in monitor mode those that would be."
    rejected = CounterMetricFamily("headgate_concurrency_rejected", text, labels=["priority", "reason"])
    for priority in PRIORITIES:
        for reason in Reason:
            rejected.add_metric([priority, reason.value], state.rejected.get(priority, {}).get(reason.value, 0))
    yield rejected
