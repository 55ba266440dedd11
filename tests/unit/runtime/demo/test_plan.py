import math

import pytest

from headgate.errors import ConfigurationError
from headgate.runtime.demo.plan import CALM, KINDS, OVERLOAD, PHASES, Plan


def test_the_phases_take_the_whole_time():
    assert math.isclose(sum(phase.part for phase in PHASES), 1.0)
    assert [phase.name for phase in PHASES] == ["calm", "overload_without", "overload_with", "outage", "recovery"]


def test_the_overload_is_ten_times_the_capacity_and_advice_can_end_it():
    assert math.isclose(sum(OVERLOAD.values()), 10.0)
    assert OVERLOAD["people"] + OVERLOAD["crawlers"] < 0.9
    assert sum(CALM.values()) < 0.7
    assert set(CALM) == set(OVERLOAD) == set(KINDS) == {kind for kind, _ in Plan().clients}


@pytest.mark.parametrize(("seconds", "max_age", "period"), [(10.0, 1, 0.25), (20.0, 1, 0.25), (120.0, 8, 2.0)])
def test_the_clocks_of_advice_follow_from_the_length(seconds, max_age, period):
    plan = Plan(seconds)
    assert (plan.max_age, plan.period) == (max_age, period)
    assert plan.capacity == pytest.approx(100)


def test_two_hundred_clients():
    assert sum(count for _, count in Plan().clients) == 200


@pytest.mark.parametrize("seconds", [0.0, 9.9, 3601.0, math.nan, math.inf])
def test_a_length_out_of_range_is_an_error(seconds):
    with pytest.raises(ConfigurationError, match="10 to 3600 seconds"):
        Plan(seconds)
