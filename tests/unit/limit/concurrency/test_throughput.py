"""How long requests take, by Little's law."""

import pytest

from headgate.limit.concurrency.throughput import SAMPLE, Throughput


def test_the_time_is_the_area_by_the_number_of_requests() -> None:
    throughput = Throughput(0.1)
    throughput.measure(20.0, 100, now=5.0)
    assert (throughput.duration, throughput.recent) == (0.2, 0.2)


def test_later_samples_are_smoothed_by_their_size() -> None:
    throughput = Throughput(0.1)
    throughput.measure(20.0, 100, now=5.0)
    throughput.measure(40.0, SAMPLE, now=6.0)
    assert (throughput.duration, throughput.recent) == (pytest.approx(0.3), 0.4)


def test_a_sample_without_an_end_says_how_slow_it_is_now_only() -> None:
    throughput = Throughput(0.1)
    throughput.measure(200.0, 0, now=10.0)
    assert (throughput.duration, throughput.recent) == (0.1, 200.0)


def test_a_sample_ends_after_some_requests_or_seconds() -> None:
    throughput = Throughput(0.1)
    assert not throughput.is_due(100, now=50.0)  # it begins
    assert not throughput.is_due(100, now=50.9)
    assert throughput.is_due(20, now=51.0)
    assert not throughput.is_due(19, now=51.0)
    assert throughput.is_due(0, now=60.0)
