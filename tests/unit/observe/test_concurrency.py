"""The state of the concurrency limit: sums over workers, and metrics."""

import pytest

from headgate.limit.concurrency import PRIORITIES
from headgate.observe.concurrency import ConcurrencyReport, concurrency_metrics, sum_reports

ONE = ConcurrencyReport(10.0, 3, 2, "enforce", "start", 0.1, {"people": 1})
OTHER = ConcurrencyReport(12.5, 4, 1, "enforce", "latency", 0.2, {"people": 2, "prefetch": 5})


def test_the_limits_of_workers_are_summed() -> None:
    total = sum_reports([ONE, None, OTHER])
    assert total == ConcurrencyReport(
        22.5, 7, 3, "enforce", "start, latency", 0.2, {"people": 3, "verified": 0, "automated": 0, "prefetch": 5}
    )
    assert sum_reports([OTHER, OTHER]).reason == "latency"  # type: ignore[union-attr]  # there are two


@pytest.mark.parametrize("reports", [[], [None], [None, None]])
def test_without_a_limit_there_is_no_sum(reports: list[None]) -> None:
    assert sum_reports(reports) is None


def test_a_worker_that_has_ended_leaves_its_totals() -> None:
    total = sum_reports([ONE.totals, OTHER])
    assert total is not None
    assert (total.limit, total.in_flight, total.queued, total.reason) == (12.5, 4, 1, "latency")
    assert total.refused["people"] == 3


def test_each_priority_has_a_metric() -> None:
    assert list(concurrency_metrics(None)) == []
    metrics = {metric.name: metric for metric in concurrency_metrics(OTHER)}
    refused = metrics["headgate_refused_requests"].samples
    assert {sample.labels["priority"]: sample.value for sample in refused} == {
        **dict.fromkeys(PRIORITIES, 0), "people": 2, "prefetch": 5,
    }  # fmt: skip
    assert metrics["headgate_requests_in_flight"].samples[0].value == 4
