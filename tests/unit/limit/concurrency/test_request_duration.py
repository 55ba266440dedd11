"""How long requests take, by Little's law."""

import pytest

from headgate.limit.concurrency.request_duration import SAMPLE, RequestDuration


def test_the_time_is_the_area_by_the_number_of_requests() -> None:
    duration = RequestDuration(0.1)
    duration.measure(20.0, 100, now=5.0)
    assert (duration.smoothed, duration.recent) == (0.2, 0.2)


def test_later_samples_are_smoothed_by_their_size() -> None:
    duration = RequestDuration(0.1)
    duration.measure(20.0, 100, now=5.0)
    duration.measure(40.0, SAMPLE, now=6.0)
    assert (duration.smoothed, duration.recent) == (pytest.approx(0.3), 0.4)


def test_a_sample_without_an_end_says_how_slow_it_is_now_only() -> None:
    duration = RequestDuration(0.1)
    duration.measure(200.0, 0, now=10.0)
    assert (duration.smoothed, duration.recent) == (0.1, 200.0)


@pytest.mark.parametrize(("area", "ended"), [(0.0, 0), (0.001, 1), (1.9, 19)])
def test_a_sample_of_few_requests_does_not_say_that_they_are_fast(area: float, ended: int) -> None:
    duration = RequestDuration(0.1)
    duration.measure(100.0, 100, now=5.0)
    duration.measure(area, ended, now=60.0)
    assert duration.recent == duration.smoothed > 0.8


def test_a_sample_ends_after_some_requests_or_seconds() -> None:
    duration = RequestDuration(0.1)
    assert not duration.is_due(100, now=50.0)  # it begins
    assert not duration.is_due(100, now=50.9)
    assert duration.is_due(20, now=51.0)
    assert not duration.is_due(19, now=51.0)
    assert duration.is_due(0, now=60.0)
