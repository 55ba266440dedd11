"""The history law against agents that fetch at times of their own, obey for a max-age, and send a steady demand."""

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest

from headgate.advice_control import Entry, Explanation, HistoryLaw, LawSettings, Reason
from headgate.advice_control.law import TARGET
from headgate.errors import ConfigurationError

PERIOD = 60.0
MINUTES = 10
"""Periods of a max-age."""


class Site:
    """An origin with a law, of whose agents a tenth fetches in each period."""

    def __init__(self, *, floor: float = 0.001, monitor: bool = False, start: Iterable[Entry] = ()) -> None:
        self.law = HistoryLaw(LawSettings(floor=floor, monitor=monitor), start=start)
        self.now = 1_000.0
        self.law.update(now=self.now, capacity=0.0)
        self.obeyed = [self.published] * (MINUTES + 1)
        self.load = 0.0

    @property
    def explained(self) -> Explanation:
        (explanation,) = self.law.explain()
        return explanation

    @property
    def published(self) -> float:
        """What agents are served; everything in monitor mode."""
        return 1.0 if self.law._settings.monitor else self.law.entries[0].wanted

    def run(
        self, periods: int, demand: float, *, capacity: float = 100.0, people: float = 0.0, ignoring: float = 0.0
    ) -> "Site":
        """Let so many periods pass with these requests per second."""
        for _ in range(periods):
            self.now += PERIOD
            self.obeyed = [*self.obeyed[1:], self.published]
            # Agents fetch all the time: the oldest advice is obeyed by ever fewer, the new one by ever more.
            ends = (self.obeyed[0] + self.obeyed[-1]) / 2
            self.load = demand * (sum(self.obeyed) - ends) / MINUTES + ignoring
            self.law.arrived("*", self.load * PERIOD)
            self.law.arrived(None, people * PERIOD)
            self.law.update(now=self.now, capacity=capacity)
        return self


def test_everything_is_wanted_below_the_capacity():
    site = Site().run(20, 90.0)
    assert site.law.entries == (Entry("*"),)
    assert site.explained.reason is Reason.SETTLED
    assert (site.explained.demand, site.explained.arrivals) == (pytest.approx(90.0), pytest.approx(90.0))
    assert site.explained.in_force == 1.0


def test_the_first_correction_is_the_right_one():
    """The fraction stays when the load falls because of it: that shows no other demand."""
    site = Site().run(1, 400.0)
    assert site.published == pytest.approx(TARGET * 100.0 / 400.0)
    assert site.explained.reason is Reason.CHANGED
    first = site.published
    for _ in range(3 * MINUTES):
        site.run(1, 400.0)
        assert site.published == first
        assert site.explained.demand == pytest.approx(400.0)
    assert site.load == pytest.approx(97.0, rel=0.05)
    assert site.explained.in_force == pytest.approx(first, rel=0.01)
    assert site.explained.arrivals == pytest.approx(97.0, rel=0.06)


def test_people_are_served_first():
    assert Site().run(30, 400.0, people=57.0).load == pytest.approx(40.0, rel=0.1)


def test_agents_that_ignore_advice_take_from_those_that_obey():
    site = Site().run(60, 400.0, ignoring=50.0)
    assert site.load == pytest.approx(97.0, rel=0.06)


def test_below_the_floor_a_class_is_disallowed_and_comes_back():
    site = Site(floor=0.01).run(1, 400.0, people=200.0)
    assert site.law.entries == (Entry("*", disallow=True),)
    assert site.explained.reason is Reason.DISALLOWED
    site.run(MINUTES + 1, 400.0, people=200.0)
    # All agents are disallowed, so their demand cannot be seen any more: the estimate is halved every max-age.
    assert site.explained.reason is Reason.DEMAND_UNKNOWN
    before = site.explained.demand
    site.run(MINUTES, 400.0, people=200.0)
    assert site.explained.demand == pytest.approx(before / 2)
    assert site.explained.in_force == 0.0
    # When people leave, the fraction rises from the floor to 1 in one max-age at most.
    rising = [site.run(1, 60.0, people=10.0).published for _ in range(MINUTES + 2)]
    assert rising[0] == 0.01
    assert all(after <= before * 0.01**-0.1 * 1.001 for before, after in pairwise(rising))
    assert rising[-1] == 1.0


def test_an_idle_class_is_not_invited_while_people_need_everything():
    assert Site().run(1, 0.0, people=200.0).law.entries == (Entry("*", disallow=True),)


def test_requests_in_spite_of_disallow_are_subtracted():
    """Of two classes one is disallowed and sends: what is left for the other one is less by that."""
    law = HistoryLaw(LawSettings(("rude", "*"), floor=0.1), start=[Entry("rude", disallow=True), Entry("*")])
    law.update(now=0.0, capacity=100.0)
    law.arrived("rude", 80.0 * PERIOD)
    law.arrived("*", 85.0 * PERIOD)
    entries = law.update(now=PERIOD, capacity=100.0)
    assert entries[1].fraction == pytest.approx(17.0 / 85.0)


def test_a_rise_is_limited_to_the_floor_in_one_max_age():
    site = Site(start=[Entry("*", fraction=0.1)]).run(1, 10.0)
    assert site.published == pytest.approx(0.1 * 0.001**-0.1, abs=1e-6)
    assert site.explained.reason is Reason.RISE_LIMITED


def test_a_start_continues_with_what_agents_obey():
    site = Site(start=[Entry("*", fraction=0.25), Entry("unknown", fraction=0.5)]).run(1, 388.0)
    assert site.published == 0.25
    assert site.explained.demand == pytest.approx(388.0)


def test_monitor_computes_and_expects_no_effect():
    site = Site(monitor=True).run(3 * MINUTES, 400.0)
    assert site.law.entries[0].fraction == pytest.approx(0.2425, rel=0.01)
    assert site.explained.in_force == 1.0


def test_small_differences_change_nothing():
    site = Site().run(1, 400.0)
    published = site.published
    for demand, changes in ((400.0 * 1.04, False), (400.0 * 1.08, True)):
        law = HistoryLaw(LawSettings(), start=[Entry("*", fraction=published)])
        law.update(now=0.0, capacity=100.0)
        law.arrived("*", demand * published * PERIOD)
        assert (law.update(now=PERIOD, capacity=100.0) != (Entry("*", fraction=published),)) is changes


def test_a_small_site_is_measured_for_longer():
    """With few requests, the demand is the mean over a max-age, and larger differences are noise."""
    law = HistoryLaw(LawSettings())
    law.update(now=0.0, capacity=1.0)
    for minute, count in enumerate([100, 20, 20, 20, 20], 1):
        law.arrived("*", count)
        law.update(now=minute * PERIOD, capacity=100.0)
    assert law.explain()[0].demand == pytest.approx(180 / 300)
    for minute in range(6, 16):
        law.arrived("*", 20)
        law.update(now=minute * PERIOD, capacity=100.0)
    assert law.explain()[0].demand == pytest.approx(20 / 60)
    law.arrived("*", 1_000)
    law.update(now=16 * PERIOD, capacity=100.0)
    assert law.explain()[0].demand == pytest.approx(1_000 / 60)


@pytest.mark.parametrize(("seconds", "reason"), [(PERIOD, Reason.SETTLED), (121.0, Reason.FROZEN)])
def test_a_suspended_process_decides_nothing(seconds, reason):
    law = HistoryLaw(LawSettings())
    law.update(now=0.0, capacity=100.0)
    law.arrived("*", 10.0)
    law.update(now=seconds, capacity=100.0)
    assert law.explain()[0].reason is reason


def test_a_frozen_period_is_not_counted():
    law = HistoryLaw(LawSettings())
    law.update(now=0.0, capacity=100.0)
    law.arrived("*", 1e6)
    assert law.update(now=PERIOD, capacity=100.0, frozen=True) == (Entry("*"),)
    assert law.explain()[0].reason is Reason.FROZEN
    law.arrived("*", 10.0 * PERIOD)
    law.update(now=2 * PERIOD, capacity=100.0)
    assert (law.explain()[0].reason, law.explain()[0].demand) == (Reason.SETTLED, 10.0)


def test_decides_once_a_period():
    law = HistoryLaw(LawSettings(max_age=100.0))
    assert law.is_due(now=5.0)
    law.update(now=5.0, capacity=1.0)
    law.arrived("*", 1_000.0)
    assert not law.is_due(now=14.9)
    assert law.update(now=14.9, capacity=1.0) == (Entry("*"),)
    assert law.explain()[0].reason is Reason.START
    assert law.is_due(now=14.995)  # a timer may be early by a rounding error
    assert law.update(now=14.995, capacity=1.0) != (Entry("*"),)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"floor": 0.0}, "floor must be from 0.0001 to 1, got 0.0"),
        ({"floor": 1.5}, "floor must be"),
        ({"max_age": 0.0}, "max_age must be a positive number"),
        ({"max_age": math.inf}, "max_age must be"),
        ({"classes": ()}, "at least one class"),
        ({"classes": ("a", "a")}, "each once"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        LawSettings(**settings)
