import pytest

from headgate.advice.class_demand import ClassDemand, Visibility

NOW = 1_700_000_000.0


def rising(known):
    """Return a class whose demand has risen steadily; the agent in the log sends the part `known` of it."""
    demand = ClassDemand(start=1.0, floor=0.001, samples=400, period=60.0, max_age=600.0, max_agents=10)
    demand.fetched("agent", 1.0, now=NOW, max_age=6_000.0)
    for number in range(1, 6):
        demand.arrived("agent", known * 6_000.0 * number)
        demand.arrived(None, (1.0 - known) * 6_000.0 * number)
        demand.measure(60.0, 1.0, now=NOW + 60.0 * number, since_start=2.0)
    return demand


@pytest.mark.parametrize(("known", "expected"), [(0.4, 500.0), (0.6, 850.0)])
def test_demand_is_forecast_if_most_requests_are_of_agents_in_the_log(known, expected):
    assert rising(known).expected(180.0) == pytest.approx(expected)


def test_requests_of_a_class_without_a_fetch_are_uncontrolled():
    demand = ClassDemand(start=0.5, floor=0.001, samples=400, period=60.0, max_age=600.0, max_agents=10)
    demand.arrived("agent", 6_000.0)
    demand.measure(60.0, 0.5, now=NOW, since_start=2.0)
    assert (demand.visibility, demand.window.demand, demand.uncontrolled.demand) == (Visibility.NO_FETCH, 0.0, 100.0)
    demand.fetched("agent", 0.5, now=NOW, max_age=600.0)
    demand.arrived("agent", 6_000.0)
    demand.measure(60.0, 0.5, now=NOW + 60.0, since_start=2.0)
    assert (demand.visibility, demand.window.demand) == (Visibility.MEASURED, 200.0)


@pytest.mark.parametrize("permitted", [0, 1], ids=["before the start", "a period after it"])
def test_all_requests_disobey_once_no_advice_that_permits_any_is_fresh(permitted):
    """Whatever was computed: another fraction may have been served."""
    demand = ClassDemand(start=1.0, floor=0.001, samples=400, period=60.0, max_age=600.0, max_agents=10)
    demand.renew(now=NOW)
    demand.fetched("agent", 0.0, now=NOW, max_age=6_000.0)
    if permitted:
        demand.fetched("permitted", 0.5, now=NOW + 60.0, max_age=600.0)
    disobeying = []
    for number in range(1, 14):
        demand.arrived(None, 6_000.0)
        demand.measure(60.0, 0.0, now=NOW + 60.0 * number, since_start=2.0)
        disobeying.append(demand.disobeying.arrivals)
    assert disobeying == [0.0] * (10 + permitted) + [100.0] * (3 - permitted)


def disallowed(arrived, *, before=6_000.0):
    """Return a class that sent so many requests in a period before it was disallowed; then an unknown agent sends."""
    demand = ClassDemand(start=1.0, floor=0.001, samples=400, period=60.0, max_age=600.0, max_agents=10)
    demand.fetched("agent", 1.0, now=NOW, max_age=60.0)
    demand.arrived("agent", before)
    demand.measure(60.0, 1.0, now=NOW + 60.0, since_start=2.0)
    demand.fetched("agent", 0.0, now=NOW + 60.0, max_age=6_000.0)
    for number in range(2, 20):
        demand.arrived("unknown", arrived)
        demand.measure(60.0, 0.0, now=NOW + 60.0 * number, since_start=2.0)
    return demand


@pytest.mark.parametrize(("arrived", "compliance"), [(600.0, 0.9), (3_000.0, 0.5), (6_000.0, 0.0), (60_000.0, 0.0)])
def test_requests_of_a_class_that_is_disallowed_are_compared_with_its_demand_before(arrived, compliance):
    """Whoever sends them: one unknown client must send as much as the class to be taken for it."""
    assert disallowed(arrived).compliance == pytest.approx(compliance)


def test_requests_of_a_class_whose_demand_is_not_known_tell_nothing():
    assert disallowed(600.0, before=0.0).compliance is None


@pytest.mark.parametrize(("requests", "compliance"), [(15.0, None), (16.0, 0.5)])
def test_few_requests_that_disobey_tell_nothing(requests, compliance):
    demand = ClassDemand(start=1.0, floor=0.001, samples=400, period=60.0, max_age=600.0, max_agents=10)
    demand.fetched("agent", 1.0, now=NOW, max_age=60.0)
    demand.arrived("agent", requests)
    demand.measure(60.0, 1.0, now=NOW + 60.0, since_start=2.0)
    demand.fetched("agent", 0.0, now=NOW + 60.0, max_age=6_000.0)
    demand.arrived(None, requests)
    demand.measure(60.0, 0.0, now=NOW + 120.0, since_start=2.0)  # half of the requests in both periods
    assert demand.compliance == compliance
