import math

import pytest

from headgate.errors import ConfigurationError
from lab.ranges import Expectation, drift, judge, quantile, ripple, settling_time, window

NAN, INF = math.nan, math.inf


def test_a_window_has_its_first_instant_and_not_its_last_and_leaves_out_what_was_not_measured():
    times, values = [0.0, 1.0, 2.0, 3.0, 4.0], [5.0, NAN, 7.0, 8.0, 9.0]
    assert window(times, values, 0.0, 3.0) == ([0.0, 2.0], [5.0, 7.0])
    assert window(times, values, 3.0) == ([3.0, 4.0], [8.0, 9.0])
    assert window(times, values, 0.5, 2.0) == ([], [])


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [
        (100, 0.99, 99.0),
        (99, 0.99, 99.0),
        (200, 0.99, 198.0),
        (101, 0.99, 100.0),
        (4, 0.5, 2.0),
        (5, 0.5, 3.0),
        (100, 0.07, 7.0),
    ],
)
def test_a_quantile_is_the_value_of_the_nearest_rank(count, share, expected):
    """Of 1 … n: 99 of 100 values do not exceed 99; of 101 values, 100 are needed, since 99/101 is below 0.99."""
    values = [float(value) for value in range(count, 0, -1)]
    assert quantile(values, share) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0, 2.0, 1.1, 0.9, 1.0], 4.0),  # samples every 2 s, the band is 0.9 to 1.1
        ([5.0, 1.0, 1.2, 0.9, 1.0], 6.0),  # it was in the band at 2 s and left it
        ([1.0, 1.0, 1.0, 1.0, 1.0], 0.0),
        ([1.0, 1.0, 1.0, 1.0, 1.3], INF),
        ([5.0, 5.0, 5.0, 5.0, 1.0], 8.0),
    ],
)
def test_the_settling_time_is_that_of_the_last_entry_into_the_band(values, expected):
    times = [10.0, 12.0, 14.0, 16.0, 18.0]
    assert settling_time(times, values, 1.0, 0.1000001) == expected


def test_ripple():
    assert ripple([1.0, 3.0, 1.0, 3.0]) == 0.5  # a deviation of 1 around 2
    assert ripple([2.0, 2.0]) == 0.0
    assert ripple([-1.0, 1.0]) == INF
    assert ripple([0.0, 0.0]) == 0.0
    circle = [10.0 + math.sin(2 * math.pi * step / 100) for step in range(100)]
    assert ripple(circle) == pytest.approx(0.1 / math.sqrt(2))


def test_drift():
    assert drift([10.0, 10.0, 50.0, 0.0, 20.0, 0.0, 9.0, 9.0, 8.0]) == pytest.approx(0.15)  # 8.5 after 10
    assert drift([10.0, 5.0, 5.0, 12.0]) == pytest.approx(0.2)
    assert math.isnan(drift([1.0, 1.0, 1.0]))
    assert math.isnan(drift([0.0, 1.0, 1.0, 1.0]))


@pytest.mark.parametrize("statistic", ["mean", "max", "min", "p99", "ripple", "peak", "drift"])
def test_a_window_without_a_sample_is_outside_every_range(statistic):
    expectation = Expectation(signal="goodput", statistic=statistic, start=10.0, at_least=-1e9, at_most=1e9)
    value = expectation.measure({}, [0.0, 1.0], {"goodput": [1.0, 1.0]})
    assert math.isnan(value)
    assert not judge(expectation, [value]).within


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"statistic": "mean"}, 4.0),
        ({"statistic": "max"}, 9.0),
        ({"statistic": "min"}, 1.0),
        ({"statistic": "p99"}, 9.0),
        ({"statistic": "mean", "start": 1, "until": 3}, 3.0),
        ({"statistic": "settling_time", "target": 3.5, "tolerance": 0.5}, INF),
        ({"statistic": "settling_time", "target": 3.5, "tolerance": 0.5, "until": 4.0}, 1.0),
        ({"statistic": "overshoot", "target": 6.0}, 0.5),
        ({"statistic": "overshoot", "target": 12.0}, 0.0),
        ({"statistic": "peak"}, 2.25),
        ({"statistic": "drift"}, 8.0),
    ],
)
def test_an_expectation_measures_a_series(table, expected):
    times, values = [0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 3.0, 4.0, 9.0]
    expectation = Expectation(**{"signal": "limit", "at_most": 100.0, **table})
    assert expectation.measure({}, times, {"limit": values}) == pytest.approx(expected)


def test_an_expectation_measures_a_metric():
    expectation = Expectation(signal="success", at_least=0.9)
    assert expectation.measure({"success": 0.95, "trials": [1.0]}, [], {}) == 0.95
    with pytest.raises(ConfigurationError, match="'rate': is not measured in this scenario; it has success, trials"):
        Expectation(signal="rate", at_least=1.0).measure({"success": 0.95, "trials": [1.0]}, [], {})
    with pytest.raises(ConfigurationError, match="'success': is not measured in this scenario; it has limit"):
        Expectation(signal="success", statistic="max", at_least=1.0).measure({"success": 0.95}, [0.0], {"limit": [1.0]})


def test_bounds_are_within_the_range_and_each_seed_must_be():
    expectation = Expectation(signal="success", at_least=0.5, at_most=0.75)
    assert judge(expectation, [0.5, 0.75]).within
    assert not judge(expectation, [0.5, 0.76]).within
    assert not judge(expectation, [0.49]).within
    assert not judge(expectation, []).within
