"""Worlds in discrete time, as a whole."""

from pathlib import Path

import msgspec
import pytest

from headgate.errors import ConfigurationError
from headgate.lab.runner import run_scenario
from headgate.lab.scenario_file import find, parse_scenario, read_scenario
from headgate.lab.ticks.world import run

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
        ("agents.heavy.jitter=1", "agents[0].jitter: unknown key"),
        ("agents.heavy.kind='polar'", "agents[0].kind: expected one of requester, poller, interactive, got 'polar'"),
        ("trials=[{downtime=1, interval=1}]", "trials: a scenario has trials, or agents and origins"),
    ],
)
def test_values_that_do_not_go_together_are_errors(change, error):
    changes = [change, "ticks=10000"] if "count" in change else [change]
    with pytest.raises(ConfigurationError) as caught:
        scenario(SITE, *changes)
    assert error in str(caught.value)
    assert "site.toml" in str(caught.value)


def test_settings_survive_their_own_encoding():
    one = scenario()
    assert msgspec.convert(msgspec.to_builtins(one), type(one)) == one
