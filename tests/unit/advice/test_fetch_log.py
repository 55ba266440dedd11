import pytest

from headgate.advice.fetch_log import FetchLog, InForce

NOW = 1_700_000_000.0


def test_mean_is_taken_over_agents_and_over_time():
    log = FetchLog(10)
    log.add("a", 1.0, now=NOW, max_age=600)
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
    log.add("b", 0.0, now=NOW, max_age=600)
    log.add("c", 0.3, now=NOW, max_age=600)
    log.add("b", 0.3, now=NOW, max_age=600)
    assert log.read(now=NOW + 1) == InForce(pytest.approx(0.2), pytest.approx(1 / 3))
    assert log.fraction_of("a") == 0.0
    assert log.fraction_of("unknown") is None


def test_agent_with_stale_advice_is_removed_and_the_last_mean_stays():
    log = FetchLog(10)
    log.add("a", 0.4, now=NOW, max_age=600)
    log.add("b", 0.2, now=NOW + 300, max_age=600)
    log.read(now=NOW + 600)
    assert (len(log), log.fraction_of("a"), log.fraction_of("b")) == (1, None, 0.2)
    log.read(now=NOW + 900)
    assert len(log) == 0
    assert log.read(now=NOW + 1_000).mean == pytest.approx(0.2)


def test_agent_beyond_the_bound_replaces_the_earliest_fetch():
    log = FetchLog(2)
    log.add("a", 0.1, now=NOW, max_age=600)
    log.add("b", 0.2, now=NOW, max_age=600)
    log.add("a", 0.3, now=NOW, max_age=600)
    log.add("c", 0.5, now=NOW, max_age=600)
    assert [log.fraction_of(agent) for agent in "abc"] == [0.3, None, 0.5]
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
