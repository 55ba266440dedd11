"""Adaptive throttling on the client."""

from types import SimpleNamespace

import pytest

from headgate.lab.chance import Chance
from headgate.lab.policies.sre import WINDOW, AdaptiveThrottling, rejection_probability

NOW = 1_700_000_000.0


def a_policy(draw=lambda: 0.0):
    return AdaptiveThrottling(SimpleNamespace(), SimpleNamespace(), draw)


@pytest.mark.parametrize(
    ("requests", "accepts", "probability"),
    [(0, 0, 0.0), (1, 0, 1 / 2), (9, 0, 9 / 10), (10, 5, 0.0), (10, 4, 2 / 11), (100, 10, 80 / 101), (10, 10, 0.0)],
)
def test_the_probability_is_the_published_formula(requests, accepts, probability):
    assert rejection_probability(requests, accepts) == pytest.approx(probability)


def test_a_smaller_k_rejects_more():
    assert rejection_probability(100, 60, k=1.1) == pytest.approx(34 / 101)
    assert rejection_probability(100, 60) == 0.0


def test_a_rejected_request_counts_as_a_request():
    draws = []

    def draw():
        draws.append(None)
        return 0.0

    policy = a_policy(draw)
    assert policy.release(now=NOW) <= NOW  # the first request: 0 of 0
    policy.received(503, (), now=NOW)
    for _ in range(3):
        assert policy.release(now=NOW) > NOW
    assert len(draws) == 3


@pytest.mark.parametrize(("status", "accepted"), [(200, True), (404, True), (500, True), (429, False), (503, False)])
def test_what_the_server_refused_is_not_accepted(status, accepted):
    policy = a_policy()
    for _ in range(4):
        policy.release(now=NOW)
        policy.received(status, (), now=NOW)
    assert (policy.release(now=NOW) <= NOW) is accepted


def test_counts_end_with_the_window():
    policy = a_policy()
    policy.release(now=NOW)
    policy.received(503, (), now=NOW)
    assert policy.release(now=NOW + WINDOW - 1) > NOW + WINDOW - 1
    assert policy.release(now=NOW + 2 * WINDOW) < NOW + 2 * WINDOW


def test_a_client_sends_twice_what_an_overloaded_server_accepts():
    policy = a_policy(Chance(1).stream("policy"))
    sent = accepted = 0
    next_place = NOW
    for attempt in range(6_000):
        now = NOW + attempt / 10
        if policy.release(now=now) > now:
            continue
        is_accepted = now >= next_place  # a quarter of the attempts could be served
        next_place = now + 0.4 if is_accepted else next_place
        policy.received(200 if is_accepted else 503, (), now=now)
        if attempt >= 3_000:
            sent += 1
            accepted += is_accepted
    assert sent == pytest.approx(2 * accepted, rel=0.1)
    assert sent < 0.6 * 3_000
