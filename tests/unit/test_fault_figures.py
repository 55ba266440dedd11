"""What the tests of faults compute of their samples, and that their checks can fail."""

import pytest

from headgate.limit import Domain, Rule
from tests.e2e.fault_cases import Fault, Outcome, check, nothing
from tests.e2e.fault_figures import excess, failed, unlimited, wrongly_rejected
from tests.e2e.fault_load import LoadPlan, Sample

DOMAIN = Domain("default", (Rule.parse("1/s burst 2"),), "gcra")


def hot(*statuses):
    """Ten requests a second of the hot identifier, with these statuses."""
    return [Sample(100.0 + number / 10, 0.01, status, 0, "hot", "hot") for number, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "over", "under"),
    [
        ([200, 200, 429, 429], 0, 0),
        ([200, 200, 200, 200, 429], 2, 0),
        ([200, 429, 429, 429], 0, 1),
        ([429, 200, 200, 429], 0, 1),
        ([200, 0, 200, 429], 0, 0),  # a request without a response is not compared
    ],
)
def test_the_comparison_with_the_rule_counts_the_largest_excess_and_deficit(statuses, over, under):
    assert excess(hot(*statuses), DOMAIN) == (over, under)


def test_failed_wrongly_rejected_and_unlimited_requests():
    sent = [(502, "cold"), (0, "hot"), (429, "hot"), (429, "cold"), (429, "echo")]
    samples = [Sample(float(when), 0.0, status, 0, kind, "a") for when, (status, kind) in enumerate(sent)]
    assert [sample.sent for sample in failed(samples)] == [0.0, 1.0]
    assert [sample.sent for sample in wrongly_rejected(samples)] == [3.0]
    probes = [(200, 429), (200, 200), (0, 200)]  # an identifier's first request, and its second
    samples = [
        Sample(when + late / 4, 0.0, status, late, "echo" if late else "probe", str(when))
        for when, statuses in enumerate(probes)
        for late, status in enumerate(statuses)
    ]
    assert unlimited(samples) == [1.0]


def outcome(samples, **options):
    return Outcome(Fault("test", nothing, nothing, **options), samples, [], 101.0, 102.0, 102.5)


@pytest.mark.parametrize("status", [502, 429])
def test_check_refuses_failed_and_wrongly_rejected_requests(status):
    with pytest.raises(AssertionError):
        check(outcome([Sample(101.5, 0.01, status, 0, "cold", "a")]), LoadPlan())


def test_check_refuses_an_excess_that_the_fault_does_not_explain():
    samples = hot(*[200] * 40)
    check(outcome(samples), LoadPlan(hot_rate=20.0))
    with pytest.raises(AssertionError):
        check(outcome(samples, keeps_limits=True), LoadPlan(hot_rate=20.0))
