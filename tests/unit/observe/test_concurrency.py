"""The state of the concurrency limit: sums over workers, and metrics."""

import pytest

from headgate.limit.concurrency import (
    PRIORITIES,
    ConcurrencyLimit,
    ConcurrencySettings,
    LimitReason,
    Outcome,
    Reason,
    Waiting,
)
from headgate.observe.concurrency import ConcurrencyReport, concurrency_metrics, sum_reports

ONE = ConcurrencyReport(
    10.0,
    3,
    2,
    "enforce",
    "start",
    0.1,
    capacity=5.0,
    waiting={"people": 2},
    refused={"people": {"full": 1}},
    changes={"start": 3},
)
OTHER = ConcurrencyReport(
    12.5,
    4,
    1,
    "enforce",
    "probe",
    0.2,
    overloaded=True,
    capacity=6.0,
    waiting={"prefetch": 1},
    refused={"people": {"full": 2}, "prefetch": {"waited": 5}},
    changes={"start": 1, "probe": 4},
    refused_for={"prefetch": 90.0},
)
NONE = {reason.value: 0 for reason in Reason}
UNCHANGED = {reason.value: 0 for reason in LimitReason}


def test_the_limits_of_workers_are_summed() -> None:
    total = sum_reports([ONE, None, OTHER])
    assert total == ConcurrencyReport(
        22.5,
        7,
        3,
        "enforce",
        "start, probe",
        0.2,
        overloaded=True,
        capacity=11.0,
        waiting={"people": 2, "verified": 0, "automated": 0, "prefetch": 1},
        refused={
            "people": {**NONE, "full": 3},
            "verified": NONE,
            "automated": NONE,
            "prefetch": {**NONE, "waited": 5},
        },
        changes={**UNCHANGED, "start": 4, "probe": 4},
        refused_for={"people": 0.0, "verified": 0.0, "automated": 0.0, "prefetch": 90.0},
    )
    assert sum_reports([OTHER, OTHER]).reason == "probe"  # type: ignore[union-attr]  # there are two


@pytest.mark.parametrize("reports", [[], [None], [None, None]])
def test_without_a_limit_there_is_no_sum(reports: list[None]) -> None:
    assert sum_reports(reports) is None


def test_a_worker_that_has_ended_leaves_its_totals() -> None:
    total = sum_reports([ONE.totals, OTHER])
    assert total is not None
    assert (total.limit, total.in_flight, total.queued, total.reason) == (12.5, 4, 1, "probe")
    assert total.refused["people"]["full"] == 3
    assert total.changes["start"] == 4


def test_each_priority_has_a_metric() -> None:
    assert list(concurrency_metrics(None)) == []
    metrics = {metric.name: metric for metric in concurrency_metrics(OTHER)}
    refused = metrics["headgate_refused_requests"].samples
    found = {(sample.labels["priority"], sample.labels["reason"]): sample.value for sample in refused}
    assert set(found) == {(priority, reason.value) for priority in PRIORITIES for reason in Reason}
    assert {key for key, count in found.items() if count} == {("people", "full"), ("prefetch", "waited")}
    assert metrics["headgate_requests_in_flight"].samples[0].value == 4
    changes = metrics["headgate_concurrency_limit_changes"].samples
    assert {sample.labels["reason"]: sample.value for sample in changes} == {**UNCHANGED, "start": 1, "probe": 4}
    waiting = metrics["headgate_queued_requests"].samples
    assert [sample.value for sample in waiting] == [0, 0, 0, 1]


def test_a_report_has_the_state_of_a_limit() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(max=1, queue=1), lambda: 0.5)
    assert limit.start(now=1.0)
    limit.queue(Waiting("a", "automated", b"a", 1.0), now=1.0)
    limit.queue(Waiting("a", "prefetch", b"a", 1.0), now=1.0)
    report = ConcurrencyReport.of(limit.state, {"people": 1.23456})
    assert (report.limit, report.in_flight, report.queued, report.mode) == (1.0, 1, 1, "enforce")
    assert report.waiting["automated"] == 1
    assert report.refused_for == {"people": 1.235}
    assert report.refused["prefetch"]["full"] == 1


def test_a_report_counts_the_changes_of_a_learned_limit() -> None:
    limit = ConcurrencyLimit(ConcurrencySettings(), lambda: 0.5)
    for number in range(1, 300):
        while limit.start(now=number / 100):
            pass
        limit.end("", limit.state.in_flight / 100, Outcome.ANSWERED, now=number / 100)
    report = ConcurrencyReport.of(limit.state, {})
    assert report.reason == "no gain"  # the origin answers 100 per second, whatever the limit is
    assert {reason for reason, count in report.changes.items() if count} == {"start", "no gain"}
