"""The retry budget."""

from types import SimpleNamespace

import pytest

from headgate.lab.policies.retry_budget import WINDOW, RetryBudget, RetryRatio

NOW = 1_700_000_000.0


def a_policy():
    return RetryBudget(SimpleNamespace(), SimpleNamespace(), lambda: 0.5)


@pytest.mark.parametrize(
    ("requests", "retries", "permitted"), [(1, 0, True), (10, 1, False), (11, 1, True), (9, 1, False)]
)
def test_a_retry_is_permitted_while_the_ratio_is_below_a_tenth(requests, retries, permitted):
    ratio = RetryRatio()
    for number in range(requests):
        ratio.sent(is_retry=number < retries, now=NOW)
    assert ratio.permits_retry(now=NOW) is permitted


def test_no_retry_without_a_request():
    assert not RetryRatio().permits_retry(now=NOW)


def test_requests_and_retries_leave_the_window():
    ratio = RetryRatio()
    ratio.sent(is_retry=True, now=NOW)
    for _ in range(5):
        ratio.sent(is_retry=False, now=NOW + 1)
    assert not ratio.permits_retry(now=NOW + WINDOW - 1)
    assert ratio.permits_retry(now=NOW + WINDOW)
    assert not ratio.permits_retry(now=NOW + WINDOW + 1)  # nothing is left


def test_a_failed_request_is_retried_at_once_and_counts_as_a_retry():
    policy = a_policy()
    policy.received(503, (), now=NOW)
    assert policy.pause(1, now=NOW) == 0.5
    policy.received(503, (), now=NOW + 1)
    # One retry of two requests: the budget of the agent is spent.
    assert policy.pause(2, now=NOW + 1) is None


def test_a_request_is_sent_at_most_three_times():
    policy = a_policy()
    for _ in range(100):
        policy.received(200, (), now=NOW)
    pauses = []
    for failures in range(1, 7):
        policy.received(503, (), now=NOW)
        pauses.append(policy.pause(failures, now=NOW))
    assert pauses == [0.5, 0.5, None, 0.5, 0.5, None]


def test_retries_of_a_failing_server_are_a_tenth_of_the_requests():
    policy = a_policy()
    retries = 0
    for poll in range(1_000):
        policy.received(503, (), now=NOW + poll)
        retries += policy.pause(poll + 1, now=NOW + poll) is not None
    assert retries == pytest.approx(100, abs=2)
