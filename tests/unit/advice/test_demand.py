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
