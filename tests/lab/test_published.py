"""The two published simulations: what anti-ddos-throttling.txt says of them."""

import pytest

from lab import published
from lab.published import Agent, Server, run_attack, run_downtime
from lab.runner import run_published
from tests.quotes import quotes

SEEDS = 5


@pytest.fixture(scope="module")
def attack():
    """The metrics of the attack by policy."""
    return run_published("attack", SEEDS).policies


@quotes(
    "anti-ddos-throttling 6",
    "That a server experiencing overload will actually benefit from the anti-DDoS throttling logic, i.e. that its"
    " traffic spike will subside and be distributed over a longer period of time;",
)
def test_an_overloaded_server_benefits(attack):
    assert 280 < attack["none"]["overloaded_ticks"] < 300
    for policy in ("draft", "chromium"):
        assert attack[policy]["seeds_in_order"] == SEEDS
        assert 50 < attack[policy]["overloaded_ticks"] < 70
        assert attack[policy]["max_requests"] < 0.85 * attack["none"]["max_requests"]


@quotes(
    "anti-ddos-throttling 6",
    'That "well-behaved" clients of a server under DDoS attack actually benefit from the anti-DDoS throttling logic in'
    " that they are more likely to receive service; and",
)
def test_well_behaved_clients_benefit(attack):
    assert 0.18 < attack["none"]["client_success"] < 0.24
    assert attack["ignored"] == attack["none"]  # attackers that do not obey are not throttled
    for policy in ("draft", "chromium"):
        assert 0.36 < attack[policy]["client_success"] < 0.5
        assert attack[policy]["client_blocked"] < 0.01 < 0.5 < attack[policy]["attacker_blocked"]


@quotes(
    "anti-ddos-throttling 6",
    "That the approximate increase in perceived downtime introduced by anti-DDoS throttling for various different"
    " actual downtimes is what we expect it to be, i.e. 8-15% on average for a mixture of scenarios.",
)
def test_the_perceived_downtime_increases_as_expected():
    policies = run_published("downtime", 20).policies
    assert policies["none"] == {"perceived_downtime_ratio": 1.0, "trials": [1.0] * 18}
    for policy in ("draft", "chromium"):
        assert 1.08 <= policies[policy]["perceived_downtime_ratio"] <= 1.15


@quotes("anti-ddos-throttling 6", "A couple of discrete time simulations were coded up.")
def test_both_are_repeated_bit_for_bit():
    for run in (run_attack, run_downtime):
        assert run(("draft", 3)) == run(("draft", 3))
        assert run(("draft", 3)) != run(("draft", 4))


def test_a_server_serves_its_capacity_and_after_an_overload_nothing_for_five_ticks():
    server = Server()
    assert [server.capacity(requests) for requests in (30, 31, 0, 0, 0, 0, 0, 1)] == [30, 30, 0, 0, 0, 0, 0, 30]
    assert server.load == [30, 31, 0, 0, 0, 0, 0, 1]


def test_an_agent_attempts_after_its_interval_and_perceives_the_time_without_a_success():
    agent = Agent(published.Group(interval=2.0, jitter=0.0, start=0.0), None, lambda: 0.0, lambda: 0.0)
    start = published.START
    assert [agent.sends(start + second) for second in range(6)] == [False, True, False, False, True, False]
    agent.receive(200, start + 4)
    agent.receive(503, start + 5)
    agent.receive(200, start + 9)
    assert (agent.answered, agent.failed, agent.perceived_downtime) == (2, 1, 5.0)
