"""The times at which refused clients return."""

from collections import Counter
from random import Random

import pytest

from headgate.limit.concurrency.retry_after import MAX_RETRY_AFTER, ReturnTimes

PEOPLE, AUTOMATED = 0, 2


def test_the_first_waits_for_the_queue_and_the_others_for_each_other() -> None:
    returns = ReturnTimes(lambda: 0.0)
    assert [returns.retry_after(PEOPLE, 24, 8.0, now=50.0) for _ in range(17)] == [4.0] * 8 + [5.0] * 8 + [6.0]


def test_time_that_passes_drains_the_places() -> None:
    returns = ReturnTimes(lambda: 0.0)
    for _ in range(50):
        returns.retry_after(PEOPLE, 0, 10.0, now=50.0)
    assert returns.retry_after(PEOPLE, 0, 10.0, now=53.95) == 2.0
    assert returns.retry_after(PEOPLE, 0, 10.0, now=99.0) == 1.0


def test_a_class_returns_after_those_above_it_and_not_after_those_below() -> None:
    returns = ReturnTimes(lambda: 0.0)
    for _ in range(50):
        returns.retry_after(AUTOMATED, 0, 10.0, now=50.0)
    assert returns.retry_after(PEOPLE, 0, 10.0, now=50.0) == 1.0
    for _ in range(99):
        returns.retry_after(PEOPLE, 0, 10.0, now=50.0)
    assert returns.retry_after(AUTOMATED, 0, 10.0, now=50.0) == 11.0


@pytest.mark.parametrize("rate", [0.0, 0.001, 1.0, 1e9])
def test_the_answer_is_from_a_second_to_the_maximum(rate: float) -> None:
    for draw in (0.0, 0.999999):
        returns = ReturnTimes(lambda draw=draw: draw)  # type: ignore[misc]  # a default binds the value of the loop
        found = {returns.retry_after(PEOPLE, 100, rate, now=50.0) for _ in range(10)}
        assert min(found) >= 1.0
        assert max(found) <= MAX_RETRY_AFTER
        assert all(seconds.is_integer() for seconds in found)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("clients", "rate"), [(1000, 20.0), (1000, 50.0), (5000, 100.0)])
def test_the_peak_second_of_a_refused_herd_is_at_most_one_and_a_half_of_the_mean(
    clients: int, rate: float, seed: int
) -> None:
    """Whole seconds, as in the field."""
    returns = ReturnTimes(Random(seed).random)
    seconds = Counter(returns.retry_after(PEOPLE, 100, rate, now=50.0) for _ in range(clients))
    assert sum(seconds.values()) == clients
    span = max(seconds) - min(seconds) + 1
    assert max(seconds.values()) <= 1.5 * clients / span


def test_up_to_a_second_is_added_at_random() -> None:
    for draw, seconds in ((0.0, 1.0), (0.49, 1.0), (0.51, 2.0)):
        assert ReturnTimes(lambda draw=draw: draw).retry_after(PEOPLE, 0, 2.0, now=50.0) == seconds  # type: ignore[misc]  # as above


def test_those_for_whom_there_is_no_place_are_spread_over_the_last_minute() -> None:
    returns = ReturnTimes(Random(1).random)
    seconds = [returns.retry_after(PEOPLE, 0, 0.1, now=50.0) for _ in range(200)][30:]
    assert min(seconds) < 250.0
    assert max(seconds) > 290.0
