"""What is overload, and what is a burst."""

import pytest

from headgate.limit.concurrency.overload import Overload, Patience

SPANS = Patience(200.0, 20.0)  # requests of 0.1 s


@pytest.mark.parametrize(
    ("duration", "limit", "interval", "target"),
    [
        (0.1, 20.0, 5.0, 0.05),  # 1000 completions
        (0.1, 1000.0, 1.0, 0.05),  # ten requests
        (0.1, 1.0, 30.0, 0.05),  # the longest interval
        (20.0, 20.0, 200.0, 10.0),  # ten requests, again
        (0.001, 20.0, 0.05, 0.01),  # the shortest target
    ],
)
def test_all_spans_are_on_the_scale_of_a_request(duration: float, limit: float, interval: float, target: float) -> None:
    found = Patience(limit / duration, limit)
    assert (found.gap, found.interval, found.target) == pytest.approx((duration, interval, target))


def test_a_queue_without_a_break_is_overload() -> None:
    overload = Overload()
    overload.look(1, SPANS, now=100.0)
    assert overload.wakeup(SPANS) == 105.0
    overload.look(1, SPANS, now=104.9)
    assert not overload.is_on
    overload.look(1, SPANS, now=105.0)
    assert overload.is_on
    assert overload.wakeup(SPANS) == float("inf")


def test_a_break_begins_the_interval_anew() -> None:
    overload = Overload()
    overload.look(1, SPANS, now=100.0)
    overload.look(0, SPANS, now=104.0)
    assert overload.wakeup(SPANS) == float("inf")
    overload.look(1, SPANS, now=104.1)
    overload.look(1, SPANS, now=109.0)
    assert not overload.is_on
    assert overload.wakeup(SPANS) == pytest.approx(109.1)


def test_overload_ends_when_none_has_waited_for_as_long_as_a_request_takes() -> None:
    overload = Overload()
    for ahead, now in ((1, 100.0), (1, 105.0), (0, 106.0)):
        overload.look(ahead, SPANS, now=now)
    assert overload.wakeup(SPANS) == pytest.approx(106.1)
    overload.look(1, SPANS, now=106.05)
    overload.look(0, SPANS, now=106.1)
    assert overload.is_on, "a shorter break"
    overload.look(0, SPANS, now=106.3)
    assert not overload.is_on
