"""Exponential backoff with full jitter."""

from types import SimpleNamespace

import pytest

from headgate.lab.policies.full_jitter import CAP, FullJitter, full_jitter

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("attempt", "longest"), [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 20.0), (6, 20.0), (10_000, 20.0)]
)
def test_the_interval_doubles_up_to_the_cap(attempt, longest):
    assert full_jitter(attempt, 0.0) == 0.0
    assert full_jitter(attempt, 0.5) == longest / 2
    assert full_jitter(attempt, 1 - 2**-53) == pytest.approx(longest)


def test_base_and_cap_are_those_of_the_formula():
    assert full_jitter(3, 0.25, base=0.1, cap=100.0) == pytest.approx(0.2)
    assert full_jitter(30, 0.25, base=0.1, cap=100.0) == 25.0


def test_the_first_failure_is_attempt_0():
    policy = FullJitter(SimpleNamespace(), SimpleNamespace(), lambda: 0.5)
    assert [policy.pause(failures, now=NOW) for failures in (1, 2, 3, 7)] == [0.5, 1.0, 2.0, CAP / 2]


def test_nothing_is_held():
    policy = FullJitter(SimpleNamespace(), SimpleNamespace(), lambda: 0.5)
    policy.received(503, (), now=NOW)
    assert policy.release(now=NOW) < NOW
