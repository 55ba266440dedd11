"""Scenario files: how they are found, changed and read, and the errors in them."""

import pytest

from headgate.errors import ConfigurationError
from lab.scenario import SUITES, is_suite, parse, read

TEXT = """\
description = "Two loads at a server."
world = "events"
policies = ["none", "fixed"]
seconds = 20.0

[station]
servers = 1

[[loads]]
name = "people"
load = 0.5

[[loads]]
name = "bots"
load = 1.0
"""
ROWS = """
[[cases]]
name = "calm"
description = "Nothing happens."

[[cases]]
name = "busy"
policies = ["none"]
loads.bots.load = 5.0
station.service = { kind = "constant", mean = 0.2 }
"""


@pytest.fixture
def file(tmp_path):
    def write(text=TEXT, name="mine.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_a_scenario_is_named_after_its_file(file, tmp_path):
    (scenario,) = read(file())
    assert (scenario.name, scenario.folder) == ("mine", str(tmp_path))
    assert not is_suite(file())


def test_a_number_of_seeds_stands_for_the_seeds_from_zero():
    assert parse(TEXT, changes=["seeds=3"]).seed_list == (0, 1, 2)
    assert parse(TEXT, changes=["seeds=[7, 2]"]).seed_list == (7, 2)


def test_the_control_is_run_after_the_law_and_each_law_once():
    assert parse(TEXT, changes=["policies=[]", "law=fixed", "control=none"]).compared == ("fixed", "none")
    assert parse(TEXT, changes=["control=fixed"]).compared == ("none", "fixed")


@pytest.mark.parametrize(
    ("change", "read_back"),
    [
        ("seconds=2", lambda scenario: scenario.seconds == 2.0),
        ("description=plain text", lambda scenario: scenario.description == "plain text"),
        ('description="quoted"', lambda scenario: scenario.description == "quoted"),
        ("loads.bots.load=5", lambda scenario: [one.load for one in scenario.loads] == [0.5, 5.0]),
        ("station.servers=3", lambda scenario: scenario.station.servers == 3),
        ("laws.fixed.limit=3", lambda scenario: scenario.laws == {"fixed": {"limit": 3}}),
    ],
)
def test_a_change_sets_one_key(change, read_back):
    assert not read_back(parse(TEXT))
    assert read_back(parse(TEXT, changes=[change]))


def test_each_row_of_a_file_is_a_scenario_with_keys_of_its_own(file):
    calm, busy = read(file(TEXT + ROWS), ["seconds=7"])
    assert (calm.name, calm.description, busy.name) == ("calm", "Nothing happens.", "busy")
    assert [one.load for one in calm.loads] == [0.5, 1.0]
    assert [one.load for one in busy.loads] == [0.5, 5.0]
    assert (busy.policies, busy.station.servers, busy.station.service.mean) == (("none",), 1, 0.2)
    assert calm.seconds == busy.seconds == 7.0
    assert is_suite(file(TEXT + ROWS))


def test_a_case_is_chosen_by_its_name(file, tmp_path):
    assert [one.name for one in read(file(TEXT + ROWS), case="busy")] == ["busy"]
    file(TEXT, "other.toml")
    assert [one.name for one in read(str(tmp_path))] == ["calm", "busy", "other"]
    assert is_suite(str(tmp_path))
    with pytest.raises(ConfigurationError, match="no case 'nix'; the cases are calm, busy, other"):
        read(str(tmp_path), case="nix")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("load", "--set 'load': expected KEY=VALUE"),
        ("=2", "--set '=2': expected KEY=VALUE"),
        ("loads..count=2", "--set 'loads..count=2': expected KEY=VALUE"),
        ("loads.clients.load=2", "mine.toml: loads: no table named 'clients'; the names are people, bots"),
        ("loads.load=2", "no table named 'load'"),
        ("seconds.more=2", "Expected `float`, got `object` - at `$.seconds`"),
        ("sedons=2", "Object contains unknown field `sedons`"),
        ("seconds=nan", "- at `$.seconds`"),
        ("seconds=1e400", "- at `$.seconds`"),
        ("seeds=0", "- at `$.seeds`"),
        ("seeds=100001", "- at `$.seeds`"),
        ("policies=[]", "policies: expected a list of policies or a `law`"),
        ("law=fixed", "policies: expected a list of policies or a `law`"),
        ('policies=["nix"]', "unknown law 'nix'; expected one of none, fixed"),
        ('policies=["nix.py:Law"]', "law 'nix.py:Law': expected file.py:Class, a file in"),
        ("laws.other.limit=3", "laws.other: this scenario does not run this law; it runs none, fixed"),
        ("laws.fixed.limits=3", "laws.fixed: Object contains unknown field `limits`"),
        ("world=tick", "world: expected one of events, rates, got 'tick'"),
        ('expect=[{signal="load"}]', "expectation of 'load': has no range; set at_least or at_most"),
    ],
)
def test_an_invalid_change_is_an_error_with_the_file_and_the_key(file, change, reason):
    with pytest.raises(ConfigurationError) as caught:
        read(file(), [change])
    assert reason in str(caught.value)


def test_every_scenario_of_the_lab_is_read_and_has_a_name_of_its_own():
    for suite in SUITES:
        scenarios = read(suite)
        assert len({one.name for one in scenarios}) == len(scenarios) > 10
        for one in scenarios:
            assert one.expect
            assert one.control
