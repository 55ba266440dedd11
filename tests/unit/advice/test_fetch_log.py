import pytest

from headgate.advice.fetch_log import FetchLog, InForce, Requests

NOW = 1_700_000_000.0


def test_mean_is_taken_over_agents_and_over_time():
    log = FetchLog(10)
    log.add("a", 1.0, now=NOW, max_age=40)
    log.add("b", 0.5, now=NOW, max_age=600)
    log.add("a", 0.1, now=NOW + 40, max_age=600)
    # 40 s of (1 + 0.5) / 2, then 60 s of (0.1 + 0.5) / 2
    assert log.read(now=NOW + 100).mean == pytest.approx((40 * 0.75 + 60 * 0.3) / 100)
    assert log.read(now=NOW + 200).mean == pytest.approx(0.3)


def test_mean_before_any_agent_is_known_is_the_given_fraction():
    assert FetchLog(10).read(now=NOW) == InForce(1.0, 0.0)
    log = FetchLog(10, fraction=0.2)
    assert log.read(now=NOW) == InForce(0.2, 0.0)
    assert log.read(now=NOW + 10) == InForce(pytest.approx(0.2), 0.0)
    assert FetchLog(10, fraction=0.0).read(now=NOW) == InForce(0.0, 1.0)


def test_disallowed_agents_are_counted_and_have_fraction_0():
    log = FetchLog(10)
    log.add("a", 0.0, now=NOW, max_age=600)
    log.add("b", 0.0, now=NOW, max_age=10)
    log.add("c", 0.3, now=NOW, max_age=600)
    log.add("b", 0.3, now=NOW, max_age=600)
    assert log.read(now=NOW + 1) == InForce(pytest.approx(0.2), pytest.approx(1 / 3))
    assert log.history("a").fraction == 0.0
    assert log.history("unknown") is None


def test_agent_with_stale_advice_is_removed_and_the_last_mean_stays():
    log = FetchLog(10)
    log.add("a", 0.4, now=NOW, max_age=600)
    log.add("b", 0.2, now=NOW + 300, max_age=600)
    log.read(now=NOW + 600)
    assert (len(log), log.history("a"), log.history("b").fraction) == (1, None, 0.2)
    log.read(now=NOW + 900)
    assert len(log) == 0
    assert log.read(now=NOW + 1_000).mean == pytest.approx(0.2)


def test_agent_beyond_the_bound_replaces_the_earliest_fetch():
    log = FetchLog(2)
    log.add("a", 0.1, now=NOW, max_age=10)
    log.add("b", 0.2, now=NOW, max_age=600)
    log.add("a", 0.3, now=NOW, max_age=600)
    log.add("c", 0.5, now=NOW, max_age=600)
    assert log.history("b") is None
    assert [log.history(agent).fraction for agent in "ac"] == [0.3, 0.5]
    assert log.read(now=NOW + 1).mean == pytest.approx(0.4)


def test_full_log_tells_its_earliest_fetch():
    log = FetchLog(2)
    log.add("a", 0.1, now=NOW, max_age=600)
    assert log.full_since is None
    log.add("b", 0.2, now=NOW + 1, max_age=500)
    assert log.full_since == NOW
    log.add("a", 0.2, now=NOW + 2, max_age=600)
    assert log.full_since == NOW + 1
    log.read(now=NOW + 501)
    assert log.full_since is None


def test_clock_that_is_set_back_adds_no_time_and_no_freshness():
    log = FetchLog(10)
    log.add("a", 1.0, now=NOW, max_age=600)
    log.read(now=NOW + 10)
    log.read(now=NOW - 3_600)
    assert log.read(now=NOW - 3_540).mean == pytest.approx(1.0)
    log.read(now=NOW - 3_000)
    assert len(log) == 0


def test_sum_that_was_rounded_stays_in_range():
    log = FetchLog(10)
    for number in range(10):
        log.add(number, 0.1, now=NOW, max_age=600)
    for number in range(10):
        log.add(number, 1.0, now=NOW, max_age=600)
    assert log.read(now=NOW + 1).mean <= 1.0


def test_requests_are_divided_by_the_fraction_at_their_time():
    log = FetchLog(10, floor=0.01)
    log.add("a", 1.0, now=NOW, max_age=10)
    log.history("a").requests += 5
    log.add("a", 0.1, now=NOW + 10, max_age=600)
    log.history("a").requests += 5
    log.add("b", 0.001, now=NOW, max_age=600)
    log.history("b").requests += 1
    assert log.requests()[:2] == (11, pytest.approx(5 + 50 + 100))
    log.begin()
    assert log.requests() == Requests()


def test_agents_of_one_name_each_obey_what_they_fetched():
    log = FetchLog(10)
    fractions = []
    for number, fraction in enumerate([1.0, 0.4, 0.4, 0.4, 0.0, 0.2]):
        log.add("a", fraction, now=NOW + 200 * number, max_age=600)
        fractions.append(log.history("a").fraction)
    # Three agents from the third fetch on: the fourth one is that of the agent that fetched first.
    assert fractions == [1.0, 0.7, 0.6, 0.4, pytest.approx(0.8 / 3), 0.2]
    log.read(now=NOW + 1_200)  # the agent of the third fetch does not come again
    assert log.history("a").fraction == 0.1


@pytest.mark.parametrize(("at", "fraction"), [(569.0, 0.6), (570.0, 0.2), (900.0, 0.2)])
def test_an_agent_may_fetch_a_little_before_its_advice_is_stale(at, fraction):
    log = FetchLog(10)
    log.add("a", 1.0, now=NOW, max_age=600)
    log.add("a", 0.2, now=NOW + at, max_age=600)
    assert log.history("a").fraction == fraction


def test_advice_that_may_not_be_kept_is_obeyed_until_it_is_noticed():
    log = FetchLog(10)
    for fraction in (0.5, 0.2, 0.2):
        log.add("a", fraction, now=NOW, max_age=0)
        assert log.history("a").fraction == fraction
    log.read(now=NOW + 1)
    assert log.history("a") is None


def test_many_agents_of_one_name_are_counted_together():
    """300 agents that fetch every two seconds in all; the memory does not grow with them."""
    log = FetchLog(10)
    for number in range(3_000):
        log.add("a", 1.0, now=NOW + 2 * number, max_age=600)
    for number in range(3_000, 3_150):
        log.add("a", 0.4, now=NOW + 2 * number, max_age=600)
    assert log.history("a").fraction == pytest.approx(0.7, abs=0.01)
    assert len(log._served["a"]._fetches) <= 22
    for number in range(100):
        log.add("a", number / 100, now=NOW + 6_301, max_age=600)
    assert len(log._served["a"]._fetches) == 32


def test_requests_of_agents_that_are_disallowed_are_no_demand():
    log = FetchLog(10)
    for agent in ("disobeys", "obeys", "sends as another"):
        log.add(agent, 0.5, now=NOW, max_age=10)
    log.history("disobeys").requests += 1
    log.history("obeys").requests += 1
    for agent in ("disobeys", "obeys", "sends as another"):
        log.add(agent, 0.0, now=NOW + 10, max_age=50)
    log.history("disobeys").requests += 3
    assert log.requests() == Requests(arrivals=5, demand=4, disobeying=3, silent=0)
    log.begin()
    log.history("disobeys").requests += 3
    assert log.requests() == Requests(arrivals=3, demand=0, disobeying=3, silent=2)
    log.begin()
    assert log.requests() == Requests(senders=1, silent=1)
    log.add("disobeys", 0.5, now=NOW + 60, max_age=10)
    log.history("disobeys").requests += 3
    assert log.requests() == Requests(arrivals=3, disobeying=3, proven=3, senders=1, silent=1)
    log.add("disobeys", 1.0, now=NOW + 70, max_age=600)
    log.history("disobeys").requests += 4
    assert log.requests() == Requests(arrivals=7, demand=4, disobeying=3, silent=1)
    log.begin()
    log.history("disobeys").requests += 4
    assert log.requests() == Requests(arrivals=4, demand=4, silent=1)


def test_requests_of_replaced_agents_are_kept_until_the_end_of_the_period():
    log = FetchLog(1)
    log.add("a", 0.5, now=NOW, max_age=600)
    log.history("a").requests += 3
    log.add("b", 1.0, now=NOW, max_age=600)
    log.history("b").requests += 4
    assert log.requests() == Requests(arrivals=7, demand=10)
    log.add("c", 0.0, now=NOW, max_age=600)
    log.history("c").requests += 1
    log.add("d", 1.0, now=NOW, max_age=600)
    assert log.requests() == Requests(arrivals=8, demand=10, disobeying=1)
    log.begin()
    assert log.requests() == Requests()


def test_history_goes_on_when_an_agent_with_stale_advice_fetches_again():
    log = FetchLog(10)
    log.add("a", 0.5, now=NOW, max_age=600)
    history = log.history("a")
    log.read(now=NOW + 600)
    assert log.history("a") is None
    log.add("a", 0.4, now=NOW + 900, max_age=600)
    assert log.history("a") is history
    log.read(now=NOW + 1_500)
    log.read(now=NOW + 2_200)  # more than one max-age after the advice became stale
    log.add("a", 0.3, now=NOW + 2_200, max_age=600)
    assert log.history("a") is not history


def test_agents_with_stale_advice_are_replaced_first():
    log = FetchLog(2)
    log.add("stale", 0.5, now=NOW, max_age=600)
    log.add("fresh", 0.5, now=NOW + 300, max_age=600)
    log.read(now=NOW + 600)
    log.add("new", 0.5, now=NOW + 600, max_age=600)
    assert log.history("fresh") is not None
    log.add("newer", 0.5, now=NOW + 600, max_age=600)
    assert log.history("fresh") is None
