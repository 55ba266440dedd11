"""Scenario files: how they are found, changed and read, and the errors in them."""

from pathlib import Path

import msgspec
import pytest

from headgate.errors import ConfigurationError
from headgate.lab.scenario_file import (
    FOLDER,
    case_files,
    descriptions,
    find,
    is_suite,
    names,
    parse_scenario,
    read_scenario,
)

TEXT = """\
description = "Agents request a server."
world = "ticks"
policies = ["none"]
ticks = 20

[[agents]]
name = "client"
kind = "requester"
count = 10
interval = 2.0

[[agents]]
name = "attacker"
kind = "requester"
count = 5
interval = 1.0

[[origins]]
name = "site"
kind = "cooling"
capacity = 1.0
"""
PATH = Path("/folder/mine.toml")


def parse(text=TEXT, *changes, agents=None, seeds=None):
    return parse_scenario(text, PATH, changes, agents=agents, seeds=seeds)


def test_a_scenario_is_named_after_its_file():
    scenario = parse()
    assert (scenario.name, scenario.folder) == ("mine", "/folder")


def test_a_number_of_seeds_stands_for_the_seeds_from_zero():
    assert parse(TEXT, "seeds=3").seed_list == (0, 1, 2)
    assert parse(TEXT, "seeds=[7, 2]").seed_list == (7, 2)


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("load=2", lambda scenario: scenario.load == 2.0),
        ("tick = 0.5", lambda scenario: scenario.tick == 0.5),
        ("description=plain text", lambda scenario: scenario.description == "plain text"),
        ('description="quoted"', lambda scenario: scenario.description == "quoted"),
        ('policies=["none", "draft"]', lambda scenario: scenario.policies == ("none", "draft")),
        ("agents.attacker.interval=5", lambda scenario: [one.interval for one in scenario.agents] == [2.0, 5.0]),
        ("origins.site.capacity=300", lambda scenario: scenario.origins[0].capacity == 300.0),
    ],
)
def test_a_change_sets_one_key(change, read):
    assert not read(parse())
    assert read(parse(TEXT, change))


def test_too_many_runs_are_an_error():
    assert len(parse(TEXT, seeds=100_000).seed_list) == 100_000
    with pytest.raises(ConfigurationError, match=r"seeds: 500,000 policies times seeds are more than 400,000"):
        parse(TEXT, 'policies=["none", "draft", "chromium", "sre", "advice"]', seeds=100_000)


def test_later_changes_win():
    assert parse(TEXT, "load=2", "load=3").load == 3.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("load", "--set 'load': expected KEY=VALUE"),
        ("=2", "--set '=2': expected KEY=VALUE"),
        ("agents..count=2", "--set 'agents..count=2': expected KEY=VALUE"),
        ("agents.clients.count=2", "agents has no table named 'clients'; its names are client, attacker"),
        ("agents.count=2", "agents is a list; name one of its tables, client, attacker"),
        ("ticks.more=2", "ticks is not a table, so it has no keys"),
        ("ticks.more.most=2", "ticks has no table named 'more'; it has no tables with names"),
        ("load=1\nticks=4", "load: expected a number, got a text"),
        ("name=other", "name: unknown key; the keys are description, world, seeds, "),
        ("folder=/", "folder: unknown key"),
        ('summary="downtime"', "summary: 'downtime' is for [[trials]]"),
        ('origins.site.name="a b/"', "origins[0].name: "),
        ("load=nan", "load: expected a number >= 1e-06, got nan"),
        ("load=1e400", "load: expected a number <= 1000000.0, got inf"),
        ("seeds=0", "seeds: expected a whole number >= 1, got 0"),
        ("seeds=100001", "seeds: expected a whole number <= 100000, got 100001"),
        ("seeds=many", "seeds: expected a whole number or a list, got a text"),
        ("seeds=[]", "seeds: expected a list of length >= 1"),
        ("seeds=[1, 1]", "seeds: a value is listed twice"),
        ("policies=[]", "policies: expected a list of policies"),
        ("policies=none", "policies: expected a list, got a text"),
        ('policies=["none", "none"]', "policies: a value is listed twice"),
        ('policies=["nix"]', "unknown policy 'nix'; expected one of none, draft"),
        ("law=demand", "policies: expected a list of policies, or in a suite a `law`; set one of the two"),
        ("world=tick", "world: unknown world 'tick'; expected one of ticks, events"),
        ("world=[1]", "world: unknown world [1]"),
        ("ticks=1000001", "ticks: expected a whole number <= 1000000, got 1000001"),
        ("ticks=1_000_000_000_000_000_000_000", "ticks: "),
        ("agents.client.count=2000001", "agents[0].count: expected a whole number <= 2000000, got 2000001"),
        ("agents.client.count=-1", "agents[0].count: expected a whole number >= 0, got -1"),
        (
            "agents.client.kind=[]",
            "agents[0].kind: expected one of requester, poller, interactive, crawler, prefetch, got []",
        ),
        ("agents.client.kind=poler", "agents[0].kind: expected one of requester, "),
        ("summary=total", "summary: expected one of mean, attack, downtime, got 'total'"),
    ],
)
def test_an_invalid_change_is_an_error_with_the_file_and_the_key(change, reason):
    with pytest.raises(ConfigurationError) as caught:
        parse(TEXT, change)
    assert str(caught.value).startswith(("/folder/mine.toml: ", f"--set {change!r}: "))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("signal = 'load'", "expect[0]: expectation of 'load': has no range; set at_least or at_most"),
        (
            "signal = 'load'\nat_most = 1\nat_least = 2",
            "expect[0]: expectation of 'load': at_least 2 is above at_most 1",
        ),
        ("signal = 'load'\nat_most = 1\nfro = 2", "expect[0].fro: unknown key; did you mean 'from'?"),
        ("signal = 'load'\nat_most = 1\npolicies = ['nix']", "expect[0].policies: 'nix' is not run by this scenario"),
        ("at_most = 1", "expect[0]: the key 'signal' is missing"),
        ("signal = 'load'\nstatistic = 'median'\nat_most = 1", "expect[0].statistic: expected one of value, mean, max"),
    ],
)
def test_an_invalid_range_is_an_error(table, reason):
    with pytest.raises(ConfigurationError) as caught:
        parse(f"{TEXT}[[expect]]\n{table}\n")
    assert reason in str(caught.value)


def test_a_range_is_for_all_policies_but_one_that_names_some():
    ranges = "[[expect]]\nsignal = 'a'\nat_most = 1\n[[expect]]\nsignal = 'b'\nat_most = 1\npolicies = ['draft']\n"
    scenario = parse(f"control = 'sre'\n{TEXT}{ranges}", 'policies=["none", "draft"]')
    assert scenario.compared == ("none", "draft", "sre")
    found = {policy: [one.signal for one in scenario.expectations_of(policy)] for policy in scenario.compared}
    assert found == {"none": ["a"], "draft": ["a", "b"], "sre": ["a", "b"]}


@pytest.mark.parametrize(("total", "counts"), [(30, [20, 10]), (100, [67, 33]), (2, [1, 1]), (1, [1, 0])])
def test_agents_are_scaled_to_a_sum_by_the_largest_remainder(total, counts):
    assert [group.count for group in parse(agents=total).agents] == counts


def test_agents_without_a_group_that_can_be_scaled_are_an_error():
    with pytest.raises(ConfigurationError, match=r"mine\.toml: --agents 3: this scenario has no agents"):
        parse_scenario(TEXT, PATH, ["agents.client.count=0", "agents.attacker.count=0"], agents=3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a = \xff", "byte 4 is not UTF-8"),
        (b"a = ", "not TOML: Invalid value"),
        (b"a = " + b"[" * 2000, "not TOML: nested too deeply"),
        (b"#" * 10_000_001, "longer than 10,000,000 bytes"),
        (b"", "the key 'world' is missing; expected one of ticks, events"),
        (b'world = "ticks"', "the key 'description' is missing"),
    ],
)
def test_a_file_that_is_not_a_scenario_is_an_error(tmp_path, content, reason):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_scenario(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("path", ["/nix.toml", "/dev/zero", "a\0b", "x" * 5000])
def test_an_unreadable_file_is_an_error(path):
    with pytest.raises(ConfigurationError):
        read_scenario(path)


def test_a_folder_without_scenarios_is_an_error(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r": a folder without scenarios; a suite has at least one \.toml file$"
    ):
        read_scenario(tmp_path)


def test_every_scenario_of_the_package_is_found_by_its_name_and_read():
    assert {"attack", "downtime"} <= set(names())
    assert list(descriptions()) == sorted(descriptions(), key=lambda name: (is_suite(find(name)), name))
    for name in names():
        path = find(name)
        assert path.parent == FOLDER
        for file in case_files(path) if is_suite(path) else [path]:
            scenario = read_scenario(file)
            assert scenario.name == file.stem
            assert msgspec.convert(msgspec.to_builtins(scenario), type(scenario)) == scenario


@pytest.mark.parametrize("name", ["./attack", "attack.toml", "../attack", "/attack"])
def test_a_name_with_a_slash_or_suffix_is_a_path(name):
    assert find(name) == Path(name)


@pytest.mark.parametrize("name", ["", ".", "..", "__init__", "nix"])
def test_an_unknown_name_is_an_error(name):
    with pytest.raises(ConfigurationError, match=r"no scenario '.*'; "):
        find(name)
