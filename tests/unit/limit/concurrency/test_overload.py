"""What is overload, and what is a moment."""

import pytest

from headgate.limit.concurrency.overload import LONGEST_QUEUE, OverloadDetector

PEOPLE, PREFETCH = 0, 3


def detector(duration: float = 0.1, limit: float = 20.0, queue_target: float = 0.01) -> OverloadDetector:
    made = OverloadDetector()
    made.adapt(duration, limit, queue_target)
    return made


@pytest.mark.parametrize(
    ("duration", "limit", "queue_target", "interval", "target", "places"),
    [
        (0.1, 20.0, 0.01, 5.0, 0.05, 20),  # 1000 completions
        (0.1, 1000.0, 0.01, 1.0, 0.05, 1000),  # ten requests
        (0.1, 1.0, 0.01, 30.0, 0.05, 8),  # the longest interval
        (20.0, 20.0, 0.01, 200.0, 10.0, 20),  # ten requests, again
        (0.0, 20.0, 0.0, 0.05, 0.0005, 20),  # the shortest duration
        (0.1, 20.0, 0.2, 10.0, 0.2, 40),  # what is allowed by configuration
    ],
)
def test_all_spans_are_on_the_scale_of_a_request(
    duration: float, limit: float, queue_target: float, interval: float, target: float, places: int
) -> None:
    made = detector(duration, limit, queue_target)
    assert (made.interval, made.target, made.places) == (pytest.approx(interval), pytest.approx(target), places)


def test_a_queue_without_a_break_is_overload() -> None:
    made = detector()
    made.look(PEOPLE, 1, now=100.0)
    assert made.wakeup(PEOPLE) == 105.0
    made.look(PEOPLE, 1, now=104.9)
    assert not made.overloaded[PEOPLE]
    made.look(PEOPLE, 1, now=105.0)
    assert made.overloaded[PEOPLE]
    assert not made.overloaded[PREFETCH]


def test_a_break_begins_the_interval_anew() -> None:
    made = detector()
    made.look(PEOPLE, 1, now=100.0)
    made.look(PEOPLE, 0, now=104.0)
    made.look(PEOPLE, 1, now=104.1)
    made.look(PEOPLE, 1, now=109.0)
    assert not made.overloaded[PEOPLE]
    assert made.wakeup(PEOPLE) == pytest.approx(109.1)


def test_a_long_queue_is_overload_after_a_tenth_of_the_interval() -> None:
    made = detector()
    made.look(PEOPLE, LONGEST_QUEUE + 1, now=100.0)
    assert made.wakeup(PEOPLE) == 100.5
    made.look(PEOPLE, LONGEST_QUEUE, now=100.4)
    assert made.wakeup(PEOPLE) == 105.0
    made.look(PEOPLE, LONGEST_QUEUE + 1, now=100.5)
    made.look(PEOPLE, LONGEST_QUEUE + 1, now=100.9)
    assert not made.overloaded[PEOPLE]
    made.look(PEOPLE, LONGEST_QUEUE + 1, now=101.0)
    assert made.overloaded[PEOPLE]


def test_overload_ends_when_none_has_waited_for_as_long_as_a_request_takes() -> None:
    made = detector()
    made.look(PEOPLE, 1, now=100.0)
    made.look(PEOPLE, 1, now=105.0)
    made.look(PEOPLE, 0, now=106.0)
    assert made.wakeup(PEOPLE) == pytest.approx(106.1)
    made.look(PEOPLE, 1, now=106.05)
    made.look(PEOPLE, 0, now=106.1)
    assert made.overloaded[PEOPLE]
    made.look(PEOPLE, 0, now=106.3)
    assert not made.overloaded[PEOPLE]
    assert made.wakeup(PEOPLE) == float("inf")


@pytest.mark.parametrize(
    ("begin", "overloaded_at"), [(106.2, 107.7), (111.0, 112.5), (111.2, 116.2)], ids=["soon", "at the end", "later"]
)
def test_a_queue_that_begins_within_an_interval_after_overload_is_overload_sooner(
    begin: float, overloaded_at: float
) -> None:
    made = detector()
    made.look(PEOPLE, 1, now=100.0)
    made.look(PEOPLE, 1, now=105.0)
    made.look(PEOPLE, 0, now=106.0)
    made.look(PEOPLE, 1, now=begin)  # overload has ended at 106.1
    assert not made.overloaded[PEOPLE]
    assert made.wakeup(PEOPLE) == pytest.approx(overloaded_at)
    made.look(PEOPLE, 1, now=overloaded_at - 0.001)
    assert not made.overloaded[PEOPLE]
    made.look(PEOPLE, 1, now=overloaded_at + 0.001)
    assert made.overloaded[PEOPLE]
