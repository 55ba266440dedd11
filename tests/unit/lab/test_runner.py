"""The runner, over worlds that return what a test has chosen."""

import itertools
import math
import sys
from types import ModuleType

import pytest

from headgate.errors import ConfigurationError, SimulationError
from headgate.lab.ranges import Expectation
from headgate.lab.results import Run, Series
from headgate.lab.runner import MAX_RECORDED_SEEDS, WORLDS, run_one, run_scenario
from headgate.lab.scenario import ExpectSection, Scenario

NAMES = ("low", "high")


class FakeWorld(ModuleType):
    """The module of a world: the metric of a run is its seed, plus ten with the policy `high`."""

    def __init__(self):
        super().__init__("fake")
        self.calls = []

    def run(self, scenario, policy, seed, *, record):
        self.calls.append((policy, seed, record))
        value = float(seed + (10 if policy == "high" else 0))
        series = Series([0.0, 1.0], {"load": [value, 2 * value]}) if record else Series()
        return Run(policy, seed, {"value": value, "list": [value, 0.0]}, series)


@pytest.fixture
def world(monkeypatch):
    fake = FakeWorld()
    monkeypatch.setitem(sys.modules, WORLDS["ticks"], fake)
    return fake


def scenario(*expect, **keys):
    keys = {"description": "Fake.", "world": "ticks", "seeds": (3, 1, 2), "policies": NAMES, "name": "fake"} | keys
    return Scenario(expect=expect, **keys)


def test_policies_are_run_in_order_and_seeds_within_them(world):
    advanced = []
    result = run_scenario(scenario(), advance=advanced.append)
    assert world.calls == [(policy, seed, False) for policy in NAMES for seed in (3, 1, 2)]
    assert advanced == [1] * 6
    assert (result.scenario, result.seeds, result.as_expected) == ("fake", 3, True)
    assert result.policies == {"low": {"value": 2.0, "list": [2.0, 0.0]}, "high": {"value": 12.0, "list": [12.0, 0.0]}}
    assert result.series == {}
    assert result.findings == {}


def test_series_are_averaged_where_they_are_recorded(world):
    result = run_scenario(scenario(), record=True)
    assert all(record for _, _, record in world.calls)
    assert result.recorded == 3
    assert result.series["high"] == Series([0.0, 1.0], {"load": [12.0, 24.0]})
    assert result.low["high"].values["load"] == pytest.approx([11.2, 22.4])
    assert result.high["high"].values["load"] == pytest.approx([12.8, 25.6])


def test_series_of_the_first_seeds_are_recorded(world):
    result = run_scenario(scenario(seeds=MAX_RECORDED_SEEDS + 5), record=True)
    assert result.recorded == MAX_RECORDED_SEEDS
    assert sum(record for _, _, record in world.calls) == 2 * MAX_RECORDED_SEEDS
    assert result.series["low"].values["load"][0] == (MAX_RECORDED_SEEDS - 1) / 2
    assert result.policies["low"]["value"] == (MAX_RECORDED_SEEDS + 4) / 2


@pytest.mark.parametrize(
    ("section", "within"),
    [
        (ExpectSection(signal="value", at_most=2.9), {"low": False, "high": False}),
        (ExpectSection(signal="value", at_most=3.0), {"low": True, "high": False}),
        (ExpectSection(signal="load", statistic="max", at_most=6.0), {"low": True, "high": False}),
        (ExpectSection(signal="load", statistic="max", start=0.5, at_least=7.0), {"low": False, "high": True}),
    ],
)
@pytest.mark.parametrize("record", [False, True])
def test_every_seed_is_compared_with_the_range(world, section, within, record):
    result = run_scenario(scenario(section), record=record)
    assert {policy: result.within(policy) for policy in NAMES} == within
    assert bool(result.series) == record
    assert isinstance(result.findings["low"][0].expectation, Expectation)


def test_the_control_is_run_and_has_to_leave_a_range(world):
    section = ExpectSection(signal="value", at_most=3.0)
    result = run_scenario(scenario(section, policies=("low",), control="high"))
    assert list(result.policies) == ["low", "high"]
    assert result.as_expected
    assert not run_scenario(scenario(section, policies=("high",), control="low")).as_expected


def test_an_unknown_signal_is_an_error_that_names_those_there_are(world):
    with pytest.raises(ConfigurationError, match=r"'laod'.*it has load"):
        run_scenario(scenario(ExpectSection(signal="laod", statistic="max", at_most=1.0)))


def raising(error):
    def run(*_arguments, **_options):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (ValueError("wrong"), SimulationError, r"^policy 'low', seed 3: ValueError: wrong \(.*test_runner\.py, line "),
        (SystemExit(3), SimulationError, r"^policy 'low', seed 3: SystemExit: 3"),
        (MemoryError(), SimulationError, r"^policy 'low', seed 3: MemoryError \("),
        (GeneratorExit(), SimulationError, r"^policy 'low', seed 3: GeneratorExit \("),
        (SimulationError("too many events"), SimulationError, r"^policy 'low', seed 3: too many events$"),
        (ConfigurationError("load: wrong"), ConfigurationError, r"^load: wrong$"),
        (KeyboardInterrupt(), KeyboardInterrupt, r"^$"),
    ],
)
def test_an_error_of_a_run_names_policy_and_seed(world, error, raised, text):
    world.run = raising(error)
    with pytest.raises(raised, match=text):
        run_scenario(scenario())


@pytest.mark.parametrize("value", [math.nan, math.inf, [0.0, -math.inf]])
def test_a_metric_that_is_not_finite_is_an_error(world, value):
    world.run = lambda *_arguments, **_options: Run("low", 3, {"share": value})
    with pytest.raises(SimulationError, match=r"^policy 'low', seed 3: the metric 'share' is .*; expected a finite"):
        run_one(scenario(), "low", 3)


def test_a_failing_run_is_the_last_one_that_is_started(world):
    counter, whole = itertools.count(), world.run

    def run(*arguments, **options):
        if next(counter) == 2:
            raise ValueError("third")
        return whole(*arguments, **options)

    world.run = run
    with pytest.raises(SimulationError, match=r"^policy 'low', seed 2: ValueError: third"):
        run_scenario(scenario())
    assert next(counter) == 3
