import pytest

from headgate.advice.demand import DemandWindow, Period, share


def test_window_is_as_short_as_the_requests_permit():
    window = DemandWindow(samples=100, span=600.0)
    window.add(Period(60.0, 60.0, 60.0))
    window.add(Period(60.0, 60.0, 60.0))
    assert (window.arrivals, window.demand) == (1.0, 1.0)
    window.add(Period(60.0, 600.0, 1_200.0))
    assert (window.arrivals, window.demand) == (10.0, 20.0)


def test_window_with_few_requests_is_bounded_by_its_span():
    window = DemandWindow(samples=100, span=120.0)
    for requests in (12.0, 6.0, 0.0):
        window.add(Period(60.0, requests, requests))
    assert window.demand == pytest.approx(6 / 120)
    window.add(Period(200.0, 1.0, 1.0))  # a period longer than the span is used alone
    assert window.demand == pytest.approx(1 / 200)


def test_empty_window_has_no_demand():
    window = DemandWindow(samples=1, span=1.0)
    assert (window.arrivals, window.demand) == (0.0, 0.0)


def window_of(*demands, requests=100_000.0):
    """Return a window of one minute, after minutes with these demands per second."""
    window = DemandWindow(samples=100, span=600.0)
    for demand in demands:
        window.add(Period(60.0, requests, 60.0 * demand))
    return window


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        pytest.param((), 0.0, id="nothing measured"),
        pytest.param((10, 12), 12.0, id="one change is no trend"),
        pytest.param((10, 10, 12, 14), 14 + 2 * 5.5, id="rises: from the middle of the last period, five and a half"),
        pytest.param((30, 30, 28, 26), 26 - 2 * 5.5, id="falls"),
        pytest.param((10, 10, 11, 14), 14 + 5.5, id="the smaller change"),
        pytest.param((10, 10, 14, 15), 15 + 5.5, id="the smaller change, the later one"),
        pytest.param((10, 10, 10, 90), 90.0, id="a step is not continued"),
        pytest.param((10, 10, 50, 90, 90), 90.0, id="nor a step within two periods"),
        pytest.param((10, 10, 12, 11), 11.0, id="changes that do not agree"),
        pytest.param((10, 13, 10, 13, 10, 13, 10, 13, 10, 11, 12), 12.0, id="smaller than the usual difference"),
        pytest.param((10, 10, 20, 30), 30.0, id="more than twice the demand: a step within two periods"),
        pytest.param((40, 40, 30, 20), 10.0, id="half of it at least"),
        pytest.param((18, 18, 10, 10, 12, 14), 18.0, id="not above the highest of a short time ago"),
        pytest.param((19, 19, 30, 30, 28, 26), 19.0, id="not below the lowest"),
        pytest.param((12, 12, 10, 10, 12, 14), 25.0, id="unless that has been exceeded"),
    ],
)
def test_steady_change_of_the_demand_is_continued(demands, expected):
    assert window_of(*demands[:1] * 5, *demands).forecast(300.0) == pytest.approx(expected)


def test_change_within_the_standard_error_is_not_continued():
    assert window_of(*[100] * 5, 104, 108, requests=20_000.0).forecast(300.0) > 120.0
    assert window_of(*[100] * 5, 104, 108, requests=1_000.0).forecast(300.0) == 108.0


def test_extremes_are_forgotten_after_three_spans():
    calm = [10] * 30
    assert window_of(12.5, *calm[3:], 11, 12).forecast(300.0) == 12.5
    assert window_of(12.5, *calm, 11, 12).forecast(300.0) == pytest.approx(17.5)


@pytest.mark.parametrize(("requests", "noise"), [(0.0, 1.0), (4.0, 5.0), (25.0, 2.0), (100.0, 1.0), (400.0, 1.0)])
def test_noise_is_that_of_the_number_of_requests(requests, noise):
    window = DemandWindow(samples=100, span=600.0)
    window.add(Period(60.0, requests, 10 * requests))
    assert window.noise == noise


def test_scaled_window_keeps_its_arrivals():
    window = DemandWindow(samples=1, span=60.0)
    window.add(Period(60.0, 6.0, 60.0))
    window.scale(0.5)
    assert (window.arrivals, window.demand) == (pytest.approx(0.1), pytest.approx(0.5))


@pytest.mark.parametrize(
    ("available", "demands", "weights", "shares"),
    [
        (100.0, {"a": 50.0}, {"a": 1.0}, {"a": 50.0}),
        (100.0, {"a": 500.0}, {"a": 1.0}, {"a": 100.0}),
        (100.0, {"a": 10.0, "b": 500.0}, {"a": 1.0, "b": 1.0}, {"a": 10.0, "b": 90.0}),
        (100.0, {"a": 200.0, "b": 5_000.0}, {"a": 1.0, "b": 1.0}, {"a": 50.0, "b": 50.0}),
        (100.0, {"a": 200.0, "b": 5_000.0}, {"a": 3.0, "b": 1.0}, {"a": 75.0, "b": 25.0}),
        (100.0, {"a": 30.0, "b": 80.0, "c": 0.0}, {"a": 3.0, "b": 1.0, "c": 1.0}, {"a": 30.0, "b": 70.0, "c": 0.0}),
        (-5.0, {"a": 10.0}, {"a": 1.0}, {"a": 0.0}),
        (100.0, {}, {"a": 1.0}, {}),
    ],
)
def test_classes_share_by_weighted_max_min_fairness(available, demands, weights, shares):
    assert share(available, demands, weights) == pytest.approx(shares)
