"""The tournament: what `together` reaches, and that nothing less does.

The fast tests run a tenth of the agents for half the time; the deep ones run the scenario as it is. Each target has
policies that miss it, so that a world in which every policy reaches it would be noticed.
"""

from functools import cache

import pytest

from headgate.lab.policies.advice import Advice, AdvisedOrigin
from headgate.lab.policies.catalogue import POLICIES
from headgate.lab.policies.together import GatedOrigin, Together
from headgate.lab.results import Metrics
from headgate.lab.scenario_file import find, read_scenario
from headgate.lab.ticks.world import run

OTHERS = ["none", "full_jitter", "retry_budget", "sre", "draft", "advice"]
REDUCED = ("warmup=300", "ticks=600")

deep = pytest.mark.deep
"""One seed of the whole scenario takes 20 seconds; `make evidence` runs five."""


@cache
def measured(policy: str, seed: int, *changes: str, agents: int | None = None) -> Metrics:
    """Return the metrics of one run."""
    return run(read_scenario(find("tournament"), changes, agents=agents), policy, seed).metrics


def reduced(policy: str, seed: int, *changes: str) -> Metrics:
    """Return the metrics of one run of the smaller world."""
    return measured(policy, seed, *REDUCED, *changes, agents=1_000)


class WithoutGate(Together):
    """Throttle and advice; the server stands alone."""

    @classmethod
    def origin_policy(cls, origin, draw):
        """Publish advice only."""
        return AdvisedOrigin(origin, draw)


class GateThatFails(GatedOrigin):
    """A gate that passes the 503 of a server on, so that every throttle counts it."""

    def answer(self, agent, status, headers, *, now):
        """Change nothing."""
        return agent, status, headers


class WithPlainErrors(Together):
    """Everything together, but without the 502 and its `Retry-After`."""

    @classmethod
    def origin_policy(cls, origin, draw):
        """Put the gate above before the server."""
        return GateThatFails(origin, draw)


class GateAlone(Advice):
    """A gate before agents that neither obey advice nor wait for a `Retry-After`."""

    @classmethod
    def origin_policy(cls, origin, draw):
        """Put the gate of `together` before the server."""
        return GatedOrigin(origin, draw)

    def permitted(self, now):
        """Permit everything."""
        return True


def name_of(policy):
    """Return the name under which a scenario finds a class of this file."""
    return f"{__file__}:{policy.__name__}"


def check_overload(metrics_of, load, seed):
    """Check the targets at one load: enough of the capacity, nearly all people, and more than under other policies."""
    together = metrics_of("together", seed, f"load={load}")
    assert together["goodput"] >= 0.92
    assert together["interactive_success"] >= 0.97
    for policy in OTHERS:
        other = metrics_of(policy, seed, f"load={load}")
        assert other["goodput"] < together["goodput"], policy
        assert other["interactive_success"] < together["interactive_success"], policy


def test_the_scenario_compares_the_seven_policies_at_the_capacity():
    scenario = read_scenario(find("tournament"))
    assert scenario.policies == (*OTHERS, "together")
    assert scenario.load == 1.0
    assert set(scenario.policies) <= set(POLICIES)
    assert sum(group.count for group in scenario.agents) == 10_000
    heavy, interactive = scenario.agents
    assert heavy.count == 1_000
    assert interactive.deadline == 30.0
    assert interactive.offered / (interactive.offered + heavy.offered) == pytest.approx(0.05, abs=1e-3)
    assert scenario.capacities == (interactive.offered + heavy.offered,)


@pytest.mark.parametrize("load", [2, 4])
def test_an_overloaded_site_serves_its_capacity_and_people(load):
    check_overload(reduced, load, 0)


def test_on_a_server_that_errs_nothing_is_refused_by_the_agents():
    for seed in (0, 1):
        assert reduced("together", seed, "errors=0.05")["local_refusals"] == 0.0
    # A throttle refuses attempts if half of the answers are errors, so refusals are counted.
    assert reduced("draft", 0, "errors=0.5")["local_refusals"] > 0.0


@pytest.mark.parametrize("load", [1, 2])
def test_after_an_outage_the_site_is_used_at_once(load):
    changes = (f"load={load}", "outage=300")
    together = reduced("together", 0, *changes)["recovery_goodput"]
    assert together >= 0.9
    assert together >= 2 * reduced("draft", 0, *changes)["recovery_goodput"]


def test_a_gate_that_passes_the_failures_of_a_server_on_recovers_slowly():
    changes = ("load=1", "outage=300")
    slow = reduced(name_of(WithPlainErrors), 0, *changes)["recovery_goodput"]
    assert slow < reduced("together", 0, *changes)["recovery_goodput"] / 3


def test_without_the_gate_people_are_lost():
    for load in (2, 4):
        without = reduced(name_of(WithoutGate), 0, f"load={load}")
        together = reduced("together", 0, f"load={load}")
        assert without["interactive_success"] < together["interactive_success"]
        assert without["goodput"] < together["goodput"]


def test_a_gate_alone_spends_the_capacity_on_refusals():
    alone = reduced(name_of(GateAlone), 0, "load=10")
    assert alone["goodput"] < 0.1
    assert reduced("together", 0, "load=10")["goodput"] > 0.85


@deep
@pytest.mark.parametrize("load", [2, 4])
def test_the_targets_hold_at_two_and_four_times_the_capacity(load):
    check_overload(measured, load, 0)


@deep
def test_the_targets_hold_on_a_server_that_errs():
    assert measured("together", 0, "errors=0.05")["local_refusals"] == 0.0


@deep
@pytest.mark.parametrize("load", [1, 2])
def test_the_first_minute_after_an_outage_has_three_times_the_goodput_of_the_throttle(load):
    changes = (f"load={load}", "outage=300")
    draft = measured("draft", 0, *changes)["recovery_goodput"]
    assert measured("together", 0, *changes)["recovery_goodput"] >= 3 * draft


@deep
def test_at_ten_times_the_capacity_people_are_still_served():
    together = measured("together", 0, "load=10")
    assert together["interactive_success"] >= 0.99
    assert together["goodput"] >= 0.92
