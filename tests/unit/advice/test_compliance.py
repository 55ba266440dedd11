import math

import pytest

from headgate.advice.agent_history import AgentHistory
from headgate.advice.compliance import ComplianceMeter, Evidence, PooledCompliance


class Agents:
    """Agents of one class, each of which fetches in every tenth period."""

    def __init__(self, count, *, obeying=1.0, rate=1_000.0):
        self.histories = [AgentHistory(1.0, floor=0.001) for _ in range(count)]
        self.obeys = [number < obeying * count for number in range(count)]
        self.rate = rate
        self.meter = ComplianceMeter()
        self.period = 0

    def run(self, periods, fraction, *, growth=1.0, at_once=False, valid=True):
        for _ in range(periods):
            self.rate *= growth
            for number, history in enumerate(self.histories):
                if at_once or number % 10 == self.period % 10:
                    history.change(fraction)
                history.requests += self.rate * (history.fraction if self.obeys[number] else 1.0)
            self.meter.measure(self.histories, demand=sum(history.demand for history in self.histories))
            for history in self.histories:
                if valid:
                    history.begin()
                else:
                    history.discard()
            self.period += 1
        return self.meter.compliance


def test_nothing_is_known_before_the_fraction_has_changed():
    agents = Agents(20)
    assert agents.run(20, 1.0) is None
    assert agents.run(20, 0.95) is None  # less than a tenth


@pytest.mark.parametrize(("obeying", "compliance"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
@pytest.mark.parametrize("fraction", [0.3, 0.01, 0.0])
def test_compliance_is_the_part_of_the_demand_that_obeys(obeying, compliance, fraction):
    agents = Agents(20, obeying=obeying)
    agents.run(12, 1.0)
    assert agents.run(13, fraction) == pytest.approx(compliance, abs=0.02)


@pytest.mark.parametrize("fractions", [(0.2, 0.1, 0.05, 0.02), (0.1, 1.0, 0.1, 1.0)], ids=["falls", "falls and rises"])
def test_compliance_does_not_depend_on_the_fraction_before_the_change(fractions):
    agents = Agents(20, obeying=0.5)
    agents.run(12, 1.0)
    assert [agents.run(12, fraction) for fraction in fractions] == [pytest.approx(0.5, abs=0.05)] * 4


@pytest.mark.parametrize(("obeying", "compliance"), [(1.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_demand_that_grows_while_the_fraction_falls_is_divided_out(obeying, compliance):
    """Arrivals are constant if all agents obey, and grow if they do not: together they tell nothing."""
    agents = Agents(50, obeying=obeying)
    agents.run(12, 1.0)
    for step in range(1, 60):
        agents.run(1, 1.05**-step, growth=1.05)
    assert agents.meter.compliance == pytest.approx(compliance, abs=0.06)


def test_agents_that_fetch_at_once_are_compared_with_themselves():
    agents = Agents(20, obeying=0.5)
    agents.run(12, 1.0, at_once=True)
    assert agents.run(3, 0.1, at_once=True) == pytest.approx(0.5, abs=0.02)


def test_agents_that_change_their_behaviour_are_measured_anew():
    agents = Agents(20, obeying=1.0)
    agents.run(12, 1.0)
    for fraction in (0.1, 1.0) * 5:
        assert agents.run(12, fraction) == pytest.approx(1.0)
    agents.obeys = [False] * 20
    for fraction in (0.1, 1.0) * 3:
        compliance = agents.run(12, fraction)
    assert compliance < 0.2


def test_few_requests_tell_nothing():
    agents = Agents(2, rate=3.0)
    agents.run(12, 1.0)
    assert agents.run(12, 0.5) is None


def test_step_of_the_demand_is_not_compared():
    agents = Agents(20)
    agents.run(12, 1.0)
    agents.run(1, 0.5)
    assert agents.run(1, 0.5, growth=10.0) is None
    assert agents.run(1, 0.5) is None
    assert agents.run(12, 0.5) == pytest.approx(1.0)


def test_change_of_one_agent_that_its_bursts_can_explain_shows_nothing():
    agents = Agents(1, rate=1e6)
    agents.run(12, 1.0)
    assert agents.run(12, 0.85) is None


def test_period_that_is_not_valid_is_compared_with_none():
    agents = Agents(20)
    agents.run(12, 1.0)
    assert agents.run(12, 0.1, valid=False) is None
    assert agents.run(1, 0.1) is None


def test_noise_of_many_small_agents_cancels_out():
    """Each agent alone may seem to send more with a smaller fraction."""
    evidence = Evidence()
    for _ in range(100):
        # Of 50 requests without advice, 10 and 5 on average.
        evidence = evidence.plus(Evidence(12.0 - 2.0, 12.0 * 0.1, 10.0 * 0.8, 14.0))
        evidence = evidence.plus(Evidence(8.0 - 8.0, 8.0 * 0.1, 0.0 * 0.8, 16.0))
    assert evidence.compliance == pytest.approx(1.0)


def test_class_that_sends_more_with_a_smaller_fraction_does_not_obey():
    assert Evidence(seen=-100.0, reference=400.0, stayed=-50.0, variance=100.0).compliance == 0.0


def test_error_falls_with_the_evidence_and_the_evidence_is_bounded():
    assert (Evidence().error, Evidence().compliance) == (math.inf, None)
    one = Evidence(seen=50.0, reference=100.0, variance=900.0)
    assert (one.error, one.compliance) == (pytest.approx(0.3), None)
    two = one.plus(one)
    assert two.error == pytest.approx(0.3 / math.sqrt(2))
    assert two.compliance == 0.5
    assert two.bounded(100.0) == two
    assert two.bounded(50.0).error == pytest.approx(0.3)  # twice 50 is half of what it has


def test_changes_that_show_little_do_not_hide_those_that_show_much():
    """Of an agent that does not obey, and is disallowed and admitted again and again near the floor."""
    agents = Agents(20, obeying=0.0, rate=8.0)
    agents.run(12, 1.0)
    known = agents.run(12, 0.2)
    assert known == pytest.approx(0.0, abs=0.1)
    for fraction in (0.0, 0.001, 0.0, 0.002) * 20:
        assert agents.run(12, fraction) == pytest.approx(0.0, abs=0.1)


def pooled(*periods, duration=60.0):
    pool = PooledCompliance(11)
    for fraction, rate in periods:
        pool.add(fraction, rate, duration)
    return pool.compliance


FALLING = [1.0 - 0.1 * number for number in range(10)]


@pytest.mark.parametrize("obeying", [0.0, 0.5, 1.0])
def test_compliance_of_agents_that_are_not_known_is_the_change_of_their_requests(obeying):
    periods = [(fraction, 1_000.0 * (obeying * fraction + 1.0 - obeying)) for fraction in FALLING]
    assert pooled(*periods) == pytest.approx(obeying, abs=0.03)
    assert pooled(*reversed(periods)) == pytest.approx(obeying, abs=0.03)


def test_agents_that_are_not_known_obey_until_they_show_something_else():
    ignoring = [(fraction, 1_000.0) for fraction in FALLING]
    assert pooled() == pooled(*ignoring[:3]) == 1.0
    assert pooled(*ignoring[:4]) < 0.1
    assert pooled(*((fraction, 0.0) for fraction in FALLING)) == 1.0
    assert pooled(*((0.5 + fraction / 20, 1_000.0) for fraction in FALLING), duration=1e9) == 1.0  # nearly no change
    assert pooled(*((fraction, 0.1) for fraction in FALLING), duration=6.0) == 1.0  # too few requests


def test_step_of_the_demand_of_agents_that_are_not_known_shows_nothing():
    for later in (FALLING[:6], FALLING[1:7]):
        assert pooled(*[(1.0, 100.0)] * 5, *((fraction, 1_000.0 * fraction) for fraction in later)) == 1.0


def test_requests_of_agents_that_are_not_known_are_divided_by_their_compliance():
    pool = PooledCompliance(11)
    assert pool.divide(30.0, 0.1) == pytest.approx((300.0, 0.0))
    for fraction in FALLING:
        pool.add(fraction, 1e9 * (0.5 * fraction + 0.5), 1e9)
    assert pool.divide(55.0, 0.1) == pytest.approx((50.0, 50.0))
