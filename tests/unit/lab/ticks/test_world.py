"""Worlds in discrete time, as a whole."""

from pathlib import Path

import msgspec
import pytest

from headgate.errors import ConfigurationError
from headgate.lab.chance import Chance
from headgate.lab.policies import Policy
from headgate.lab.policies.catalogue import find_policy
from headgate.lab.runner import run_scenario
from headgate.lab.scenario_file import find, parse_scenario, read_scenario
from headgate.lab.ticks.world import World, run

SITE = """
description = "Pollers and users at one site."
world = "ticks"
policies = ["none", "draft"]
ticks = 200
warmup = 50
load = 2.0

[[agents]]
name = "heavy"
kind = "poller"
count = 100
interval = 2.0

[[agents]]
name = "interactive"
kind = "interactive"
count = 900
think = 340.0

[[origins]]
name = "site"
kind = "metered"
capacity = 1.0
"""


def scenario(text=SITE, *changes, agents=None):
    return parse_scenario(text, Path("site.toml"), changes, agents=agents)


def test_an_attack_has_the_published_directions_in_every_seed():
    result = run_scenario(read_scenario(find("attack"), ["seeds=5"]))
    assert set(result.policies) == {"none", "draft", "chromium"}
    for policy in ("draft", "chromium"):
        metrics = result.policies[policy]
        assert metrics["seeds_in_order"] == 5
        assert 50 < metrics["overloaded_ticks"] < 70
        assert 0.36 < metrics["client_success"] < 0.5
    assert 280 < result.policies["none"]["overloaded_ticks"] < 300
    assert 0.18 < result.policies["none"]["client_success"] < 0.24


def test_a_downtime_seems_longer_by_the_published_share():
    result = run_scenario(read_scenario(find("downtime"), ["seeds=20"]))
    assert len(result.policies["draft"]["trials"]) == 18
    for policy in ("draft", "chromium"):
        assert 1.08 <= result.policies[policy]["perceived_downtime_ratio"] <= 1.15
    assert result.policies["none"] == {"perceived_downtime_ratio": 1.0, "trials": [1.0] * 18}


@pytest.mark.parametrize("name", ["attack", "downtime"])
def test_the_same_seed_gives_the_same_run(name):
    one = read_scenario(find(name))
    assert run(one, "draft", 3, record=True) == run(one, "draft", 3, record=True)
    assert run(one, "draft", 3) != run(one, "draft", 4)


def test_an_overloaded_metered_server_serves_less_than_its_capacity():
    overloaded = run(scenario(), "none", 0).metrics
    # At twice the capacity the closed loop of pollers and the refusals leave (C - A/4) / (3/4) of C.
    assert 0.4 < overloaded["goodput"] < 0.75
    assert overloaded["server_load"] > 1.5
    assert overloaded["local_refusals"] == 0
    throttled = run(scenario(), "draft", 0).metrics
    assert throttled["goodput"] > overloaded["goodput"]
    assert throttled["server_load"] < overloaded["server_load"]
    assert throttled["local_refusals"] > 0
    idle = run(scenario(SITE, "load=0.5"), "none", 0).metrics
    assert idle["heavy_success"] == idle["interactive_success"] == 1.0


def test_the_series_have_a_value_for_each_tick():
    done = run(scenario(SITE, "outage=50"), "draft", 0, record=True)
    assert done.series.times == [float(tick) for tick in range(250)]
    assert set(done.series.values) == {"load", "goodput", "holds", "local_refusals"}
    assert {len(values) for values in done.series.values.values()} == {250}
    assert sum(done.series.values["goodput"][125:175]) == 0 < sum(done.series.values["goodput"][175:])
    assert done.series.values["holds"][174] > done.series.values["holds"][100]
    assert run(scenario(), "draft", 0).series.times == []


def test_load_sets_the_capacity_of_the_first_origin():
    offered = 100 / 2.0 + 900 / 340.0
    assert scenario().capacities == (pytest.approx(offered / 2.0),)
    assert scenario(SITE, agents=500).capacities == (pytest.approx(offered / 4.0),)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("warmup=200", "warmup: must be less than ticks, 200, got 200"),
        ('agents.heavy.name="interactive"', "agents: two have the same name"),
        ('agents.heavy.origins=["sight"]', "no origin 'sight'; expected one of site"),
        ("agents.heavy.count=2_000_000", "agents times ticks are more than"),
        ("outage=1_000_000", "outage: 1,000,200 ticks with it are more than 1,000,000"),
        ("agents.interactive.retry=[20.0, 10.0]", "agents.interactive.retry: expected [shortest, longest], got (20.0"),
        ("origins.site.outages=[[5.0, 5.0]]", "origins.site.outages: 5 is not before 5"),
        ("agents.heavy.jitter=1", "agents[0].jitter: unknown key"),
        (
            "agents.heavy.kind='polar'",
            "agents[0].kind: expected one of requester, poller, interactive, crawler, prefetch, got 'polar'",
        ),
        ("trials=[{downtime=1, interval=1}]", "trials: a scenario has trials, or agents and origins"),
    ],
)
def test_values_that_do_not_go_together_are_errors(change, error):
    changes = [change, "ticks=10000"] if "count" in change else [change]
    with pytest.raises(ConfigurationError) as caught:
        scenario(SITE, *changes)
    assert error in str(caught.value)
    assert "site.toml" in str(caught.value)


def test_the_number_of_connections_and_policies_is_bounded():
    with pytest.raises(
        ConfigurationError, match=r"agents\.bot: 100,020 connections times origins are more than 100,000"
    ):
        scenario(SEVERAL, "agents.bot.count=16670", "ticks=10")
    scenario(SEVERAL, "agents.bot.count=16660", "ticks=10")


def test_settings_survive_their_own_encoding():
    one = scenario()
    assert msgspec.convert(msgspec.to_builtins(one), type(one)) == one


SEVERAL = """
description = "Crawlers and browsers behind a proxy, at two origins."
world = "ticks"
policies = ["none", "draft"]
ticks = 300

[[agents]]
name = "bot"
kind = "crawler"
count = 2
pages = 30
connections = 3
origins = ["fast", "slow"]

[[agents]]
name = "browser"
kind = "prefetch"
count = 40
think = 20.0
proxies = 4
origins = ["slow"]

[[origins]]
name = "fast"
kind = "metered"
capacity = 10.0

[[origins]]
name = "slow"
kind = "queue"
capacity = 1.0
queue = 20
delay = 1.5
outages = [[100.0, 130.0]]
"""


def test_several_origins_have_metrics_and_series_of_their_own():
    done = run(scenario(SEVERAL), "draft", 0, record=True)
    names = set(done.metrics)
    assert {"fast_goodput", "slow_goodput", "slow_wait", "bot_pages", "bot_success", "browser_success"} <= names
    assert {"fast_load", "slow_load", "slow_waiting", "holds"} <= set(done.series.values)
    assert sum(done.series.values["slow_goodput"][105:130]) == 0 < sum(done.series.values["fast_goodput"])
    assert done.metrics["slow_wait"] > 0
    assert 0 < done.metrics["bot_pages"] <= 1


def test_browsers_behind_a_proxy_share_its_policy_and_its_address():
    world = World(scenario(SEVERAL), find_policy("draft"), Chance(0))
    browsers = world.agents[6:]
    assert len(browsers) == 40
    assert len({id(agent.policy) for agent in browsers}) == len({agent.client for agent in browsers}) == 4
    assert {agent.client for agent in browsers} == {6, 16, 26, 36}
    crawlers = world.agents[:6]
    assert [agent.client for agent in crawlers] == [0, 0, 0, 3, 3, 3]
    assert len({id(route.policy) for agent in crawlers for route in agent.routes}) == 4
    assert [agent.number for agent in world.agents] == list(range(46))


def test_agents_that_do_not_obey_send_as_without_a_policy():
    obeying, ignoring = (run(scenario(SITE, f"agents.heavy.obeys={obeys}"), "draft", 0) for obeys in ("true", "false"))
    assert ignoring.metrics["server_load"] > obeying.metrics["server_load"]
    everyone = run(scenario(SITE, "agents.heavy.obeys=false", "agents.interactive.obeys=false"), "draft", 0)
    assert everyone.metrics == run(scenario(), "none", 0).metrics


def test_a_limit_of_each_client_holds_back_what_exceeds_it():
    free = run(scenario(SITE, "load=0.5"), "none", 0).metrics
    limited = run(scenario(SITE, "load=0.5", 'origins.site.limit="1/min burst 2"'), "none", 0).metrics
    assert limited["heavy_success"] < 0.1 < free["heavy_success"]
    assert limited["interactive_success"] > 0.97  # a few visit three times in two minutes
    with pytest.raises(ConfigurationError, match=r"site\.toml: origins\.site\.limit: .*1/fortnight"):
        scenario(SITE, 'origins.site.limit="1/fortnight"')


def test_a_delayed_network_delays_what_an_origin_measures():
    near, far = (run(scenario(SITE, f"origins.site.delay={delay}"), "none", 0, record=True) for delay in (0, 20.0))
    assert sum(near.series.values["load"][:20]) > 0 == sum(far.series.values["load"][:20])
    assert far.metrics["server_load"] < near.metrics["server_load"]


IDLE = """
from headgate.lab.policies import Policy

class Idle(Policy):
    def release(self, *, now):
        self.draw()
        return now
"""


def test_a_policy_that_never_holds_gives_the_same_world_as_none(tmp_path):
    (tmp_path / "idle.py").write_text(IDLE)
    for one in (scenario(SEVERAL), scenario(), read_scenario(find("attack"), ["ticks=100"])):
        there = msgspec.structs.replace(one, folder=str(tmp_path))
        idle, none = (run(there, policy, 1, record=True) for policy in ("idle.py:Idle", "none"))
        assert (idle.metrics, idle.series) == (none.metrics, none.series)


def test_every_agent_has_its_own_streams():
    """An agent that is added at the end changes no draw of the others."""
    worlds = [World(scenario(SITE, f"agents.interactive.count={count}"), Policy, Chance(0)) for count in (900, 901)]
    firsts = [[agent.first() for agent in world.agents[:1000]] for world in worlds]
    assert firsts[0] == firsts[1]
    assert len(set(firsts[0])) == 1000


@pytest.mark.deep
def test_the_published_figures_of_the_attack_hold_for_100_seeds():
    result = run_scenario(read_scenario(find("attack"), ["seeds=100"]))
    none, draft, chromium = (result.policies[policy] for policy in ("none", "draft", "chromium"))
    assert none["overloaded_ticks"] == pytest.approx(290, abs=3)
    assert chromium["overloaded_ticks"] == pytest.approx(59, abs=1.5)
    assert draft["overloaded_ticks"] == pytest.approx(57, abs=1.5)
    assert none["client_success"] == pytest.approx(0.21, abs=0.01)
    assert chromium["client_success"] == pytest.approx(0.43, abs=0.02)
    assert draft["client_success"] == pytest.approx(0.45, abs=0.02)
    assert draft["seeds_in_order"] == chromium["seeds_in_order"] == 100


@pytest.mark.deep
def test_the_published_increase_of_perceived_downtime_holds_for_100_seeds():
    result = run_scenario(read_scenario(find("downtime"), ["seeds=100"]))
    for policy in ("draft", "chromium"):
        assert 1.08 <= result.policies[policy]["perceived_downtime_ratio"] <= 1.15


def test_the_summary_of_an_attack_is_only_for_one():
    with pytest.raises(ConfigurationError, match="summary: 'attack' is for requesters named 'attacker' and 'client'"):
        read_scenario(find("attack"), ['agents.client.name="clients"'])
