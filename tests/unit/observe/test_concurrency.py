"""The state of the concurrency limit: sums over workers, and metrics."""

import pytest

from headgate.limit.concurrency import PRIORITIES, ConcurrencyState, Reason
from headgate.observe.state import (
    DomainState,
    GateState,
    HeldIdentifier,
    ended_state,
    gate_metrics,
    merge_states,
    sum_limits,
)

ONE = ConcurrencyState(
    10.0, 3, 2, "enforce", 0.1, capacity=5.0, waiting={"people": 2}, rejected={"people": {"full": 1}}
)
OTHER = ConcurrencyState(
    12.5, 4, 1, "enforce", 0.2, overloaded=True, capacity=6.0, waiting={"prefetch": 1},
    rejected={"people": {"full": 2}, "prefetch": {"waited": 5}},
)  # fmt: skip


def test_the_limits_of_workers_are_summed() -> None:
    assert sum_limits([ONE, None, OTHER]) == ConcurrencyState(
        22.5, 7, 3, "enforce", 0.2, overloaded=True, capacity=11.0,
        waiting={"people": 2, "prefetch": 1}, rejected={"people": {"full": 3}, "prefetch": {"waited": 5}},
    )  # fmt: skip
    assert sum_limits([None, ONE]) is ONE


@pytest.mark.parametrize("states", [[], [None], [None, None]])
def test_without_a_limit_there_is_no_sum(states: list[None]) -> None:
    assert sum_limits(states) is None


def test_a_worker_that_has_ended_leaves_its_totals() -> None:
    domain = DomainState("a", accepted=5, held=(HeldIdentifier("x", 2.0, 1.0),))
    ended = ended_state(GateState((domain,), connections={"idle": 4}, concurrency=ONE, counters={"gateway_retried": 3}))
    both = merge_states([ended, GateState(connections={"idle": 2}, concurrency=OTHER)])
    assert (both.workers, both.connections, both.counters) == (1, {"idle": 2}, {"gateway_retried": 3})
    assert both.domains == (DomainState("a", accepted=5),)
    total = both.concurrency
    assert total is not None
    assert (total.limit, total.in_flight, total.queued, total.capacity) == (12.5, 4, 1, 6.0)
    assert total.rejected["people"]["full"] == 3


def test_each_priority_and_reason_has_a_metric() -> None:
    without = {metric.name for metric in gate_metrics(GateState(), [])}
    metrics = {
        metric.name: metric.samples
        for metric in gate_metrics(GateState(concurrency=OTHER), [])
        if metric.name not in without
    }
    found = {
        (sample.labels["priority"], sample.labels["reason"]): sample.value
        for sample in metrics["headgate_concurrency_rejected"]
    }
    assert set(found) == {(priority, reason.value) for priority in PRIORITIES for reason in Reason}
    assert {key for key, count in found.items() if count} == {("people", "full"), ("prefetch", "waited")}
    assert not any(" " in value for key in found for value in key)
    assert [sample.value for sample in metrics["headgate_queued_requests"]] == [0, 0, 0, 1]
    assert {name: samples[0].value for name, samples in metrics.items() if len(samples) == 1} == {
        "headgate_concurrency_limit": 12.5,
        "headgate_requests_in_flight": 4,
        "headgate_requests_uncounted": 0,
        "headgate_concurrency_overloaded": 1,
        "headgate_concurrency_latency_seconds": 0.2,
        "headgate_concurrency_capacity": 6.0,
    }
