"""The world of arrays returns what the tick world returns: the same metrics and series, to the last bit."""

from pathlib import Path

import pytest

from headgate.errors import ConfigurationError
from headgate.lab.kernel import world as kernel
from headgate.lab.scenario_file import find, parse_scenario, read_scenario
from headgate.lab.ticks import world as ticks

CROWD = """
description = "Pollers, users and requesters, in groups that follow the policy and that do not."
world = "ticks"
policies = ["none", "draft", "chromium"]
ticks = 150
warmup = 40
load = 2.0

[[agents]]
name = "heavy"
kind = "poller"
count = 60
interval = 2.5

[[agents]]
name = "people"
kind = "interactive"
count = 400
think = 40.0

[[agents]]
name = "attacker"
kind = "requester"
count = 8
interval = 3.0
jitter = 1.5
start = 10.0

[[agents]]
name = "rude"
kind = "poller"
count = 10
interval = 1.0
obeys = false

[[origins]]
name = "site"
kind = "metered"
capacity = 1.0
"""


def crowd(*changes):
    return parse_scenario(CROWD, Path("crowd.toml"), changes)


@pytest.mark.parametrize("policy", ["none", "draft", "chromium"])
@pytest.mark.parametrize(
    "scenario",
    [
        read_scenario(find("attack")),
        read_scenario(find("attack"), agents=300),
        read_scenario(find("attack"), ["origins.site.capacity=1.5", "tick=0.5"], agents=30),
        crowd(),
        crowd("load=0.7"),
        crowd("load=8", "tick=0.3", "agents.people.retry=[1, 4]"),
        crowd("load=1.2", "errors=0.2"),
        crowd("load=1.5", "outage=25", "origins.site.outages=[[10, 30]]", "origins.site.errors=0.1"),
        crowd("agents.people.deadline=2", "origins.site.refusal=1.0"),
        crowd("agents.people.count=0", "origins.site.refusal=0"),
    ],
)
def test_both_worlds_return_equal_metrics_and_series(scenario, policy):
    for seed in (0, 2**62):
        expected = ticks.run(scenario, policy, seed, record=True)
        assert kernel.run(scenario, policy, seed, record=True) == expected
        assert expected.metrics, "there is something to compare"
        assert len(expected.series.times) == scenario.total_ticks


@pytest.mark.parametrize(
    ("changes", "policy", "words"),
    [
        ([], "sre", ["none, draft, chromium", "'sre'", "--set 'policies="]),
        (["origins.site.delay=1"], "none", ["one origin", "without delay"]),
        (["origins.site.limit='1/s'"], "none", ["one origin", "limit"]),
        (["origins.site.kind='queue'", "origins.site.queue=9"], "none", ["cooling or metered"]),
        (["agents.rude.kind='crawler'", "agents.rude.pages=9"], "none", ["agents.rude.kind"]),
    ],
)
def test_what_only_the_tick_world_knows_is_an_error_that_says_what_to_do(changes, policy, words):
    with pytest.raises(ConfigurationError) as raised:
        kernel.run(crowd(*changes), policy, 0)
    for word in ["more than 100,000 agents", "fewer agents", *words]:
        assert word in str(raised.value)
