"""The times at which rejected clients return."""

from collections import Counter
from itertools import count
from random import Random

import pytest

from headgate.limit.concurrency.overload import MAX_FLOWS, MAX_RETRY_AFTER, ReturnTimes

PEOPLE, AUTOMATED = 0, 2


class Returns:
    """Return times of clients that are all different."""

    def __init__(self, draw: float = 0.0, seed: int | None = None) -> None:
        self.times = ReturnTimes(Random(seed).random if seed is not None else lambda: draw)
        self.flows = count()

    def get(self, rank: int = PEOPLE, ahead: int = 0, rate: float = 10.0, now: float = 50.0) -> float:
        return self.times.retry_after(rank, b"%d" % next(self.flows), ahead, rate, now=now)


def test_the_first_waits_for_the_queue_and_the_others_for_each_other() -> None:
    returns = Returns()
    assert [returns.get(ahead=24, rate=8.0) for _ in range(17)] == [4.0] * 8 + [5.0] * 8 + [6.0]


def test_the_rejections_of_one_client_take_one_slot() -> None:
    returns = Returns()
    flood = [returns.times.retry_after(PEOPLE, b"flood", 0, 10.0, now=50.0 + number / 400) for number in range(400)]
    assert set(flood) == {1.0}
    assert returns.get(now=51.0) == 1.0
    assert returns.times.retry_after(PEOPLE, b"flood", 0, 0.5, now=52.0) == 2.0, "its slot is over"


def test_no_more_clients_are_remembered_than_the_bound() -> None:
    returns = Returns()
    for _ in range(MAX_FLOWS + 10):
        returns.get(rate=1e6)
    assert len(returns.times._slots) == MAX_FLOWS


def test_time_that_passes_drains_the_slots() -> None:
    returns = Returns()
    for _ in range(50):
        returns.get()
    assert returns.get(now=53.95) == 2.0
    assert returns.get(now=99.0) == 1.0


def test_a_class_returns_after_those_above_it_and_not_after_those_below() -> None:
    returns = Returns()
    for _ in range(50):
        returns.get(AUTOMATED)
    assert returns.get() == 1.0
    for _ in range(99):
        returns.get()
    assert returns.get(AUTOMATED) == 11.0


@pytest.mark.parametrize("draw", [0.0, 0.999999])
@pytest.mark.parametrize("rate", [0.001, 1.0, 1e9])
def test_the_answer_is_from_a_second_to_the_maximum(rate: float, draw: float) -> None:
    returns = Returns(draw)
    found = {returns.get(ahead=100, rate=rate) for _ in range(10)}
    assert min(found) >= 1.0
    assert max(found) <= MAX_RETRY_AFTER
    assert all(seconds.is_integer() for seconds in found)


@pytest.mark.parametrize(("clients", "rate"), [(1000, 20.0), (1000, 50.0), (5000, 100.0)])
def test_the_peak_second_of_a_rejected_herd_is_at_most_one_and_a_half_of_the_mean(clients: int, rate: float) -> None:
    """Whole seconds, as in the field."""
    returns = Returns(seed=1)
    seconds = Counter(returns.get(ahead=100, rate=rate) for _ in range(clients))
    span = max(seconds) - min(seconds) + 1
    assert max(seconds.values()) <= 1.5 * clients / span


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 1.0), (0.49, 1.0), (0.51, 2.0)])
def test_up_to_a_second_is_added_at_random(draw: float, seconds: float) -> None:
    assert Returns(draw).get(rate=2.0) == seconds


def test_those_for_whom_there_is_no_slot_are_spread_over_the_last_minute() -> None:
    returns = Returns(seed=1)
    seconds = [returns.get(rate=0.1) for _ in range(200)][30:]
    assert min(seconds) < 250.0
    assert max(seconds) > 290.0
