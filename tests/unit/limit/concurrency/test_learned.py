"""The learned limit, at an origin that serves a number of requests at once and keeps the others in a queue."""

import heapq
import random

import pytest

from headgate.limit.concurrency import ConcurrencySettings, LimitReason, Outcome
from headgate.limit.concurrency.learned import LearnedLimit
from headgate.limit.concurrency.learned.domain_windows import DomainWindows
from headgate.limit.concurrency.learned.law import LimitLaw
from headgate.limit.concurrency.learned.measurement import Window
from headgate.limit.concurrency.learned.phases import Phase


class Origin:
    """An origin with `places` and exponential times, always asked for as many requests as the limit permits."""

    def __init__(self, places: int = 30, mean: float = 0.1, **settings) -> None:
        self.law = LearnedLimit(ConcurrencySettings(**settings))
        self.places, self.mean, self.timeouts = places, mean, 0.0
        self.demand = float("inf")
        self.domains: tuple[tuple[str, float], ...] = (("", 1.0),)
        """Names, and their service times as multiples of the mean; requests take turns."""
        self.is_limited = True
        self.now = 0.0
        self.answered = 0
        self._draw = random.Random(1)
        self._started: list[float] = []  # those that wait for a place, the earliest first
        self._serving: list[tuple[float, float, str]] = []  # (end, start, domain)
        self._served = 0

    def run(self, seconds: float) -> float:
        """Let the time pass; return the mean of the limit at the ends of requests."""
        until, limits = self.now + seconds, []
        while self.now < until:
            most = min(self.law.limit, self.demand) if self.is_limited else self.demand
            while len(self._started) + len(self._serving) < most:
                self._started.append(self.now)
            while self._started and len(self._serving) < self.places:
                start = self._started.pop(0)
                domain, factor = self.domains[self._served % len(self.domains)]
                self._served += 1
                seconds = self._draw.expovariate(1.0 / (factor * self.mean))
                heapq.heappush(self._serving, (self.now + seconds, start, domain))
            in_flight = len(self._started) + len(self._serving)
            self.now, start, domain = heapq.heappop(self._serving)
            timed_out = self._draw.random() < self.timeouts
            outcome = Outcome.TIMED_OUT if timed_out else Outcome.ANSWERED
            self.law.ended(domain, self.now - start, outcome, in_flight, now=self.now)
            limits.append(self.law.limit)
            self.answered += not timed_out
        return sum(limits) / len(limits)

    def rest(self, seconds: float) -> None:
        """Answer what is in flight, and get no request for a time."""
        demand, self.demand = self.demand, 0
        while self._serving or self._started:
            self.run(1e-9)
        self.now += seconds
        self.demand = demand


@pytest.mark.parametrize("places", [6, 30, 200])
def test_the_limit_finds_the_places_of_an_origin(places):
    origin = Origin(places)
    origin.run(60.0)
    assert 0.9 * places <= origin.run(60.0) <= 1.5 * places


def test_each_response_permits_one_more_at_the_start_while_the_throughput_follows():
    origin = Origin(200)
    origin.run(1.0)
    assert origin.law.limit >= 160.0
    assert origin.answered > 1_000  # of the 2,000 that the places allow; 20 at once would be 200


def test_a_start_that_is_overloaded_ends_with_the_first_limit_that_gains_nothing():
    origin = Origin(20)
    limits = set()
    for _ in range(60):
        origin.run(0.1)
        limits.add(origin.law.limit)
    assert max(limits) <= 80.0
    assert origin.law.limit <= 30.0


def test_a_start_at_the_ceiling_is_no_overload():
    origin = Origin(100, ceiling=30)
    limits = set()
    for _ in range(20):
        origin.run(0.1)
        limits.add(origin.law.limit)
    assert origin.law.limit == max(limits) == 30.0


def test_the_limit_stays_while_it_is_not_reached():
    origin = Origin()
    origin.demand = 10
    origin.run(100.0)
    assert (origin.law.limit, origin.law.reason) == (20.0, LimitReason.START)


def test_a_limit_that_is_frozen_stays():
    origin = Origin(100, freeze=True)
    origin.run(30.0)
    assert origin.law.limit == 20.0


def test_the_floor_bounds_the_limit():
    low = Origin(2, floor=12)
    low.run(60.0)
    assert 12.0 <= low.law.limit < 20.0
    low.law.reconfigure(ConcurrencySettings(floor=30))
    assert low.law.limit == 30.0
    assert LearnedLimit(ConcurrencySettings(floor=50)).limit == 50.0


def test_the_limit_falls_when_all_requests_time_out_and_returns():
    origin = Origin()
    origin.run(30.0)
    origin.timeouts, origin.mean = 1.0, 5.0
    origin.run(60.0)
    assert (origin.law.limit, origin.law.reason) == (4.0, LimitReason.TIMEOUTS)
    origin.timeouts, origin.mean = 0.0, 0.1
    origin.run(30.0)
    assert origin.run(10.0) > 25.0


def test_the_limit_follows_slower_responses_that_meet_no_queue():
    origin = Origin()
    origin.run(60.0)
    origin.mean = 0.5
    origin.run(60.0)
    assert origin.run(60.0) > 27.0
    assert 0.4 < origin.law.baseline < 0.75
    origin.mean = 0.1
    origin.run(10.0)
    assert 27.0 < origin.run(60.0) < 45.0
    assert origin.law.baseline < 0.15


def test_the_limit_follows_places_that_are_lost_and_come_back():
    origin = Origin(60)
    origin.run(60.0)
    origin.places = 20
    origin.run(30.0)
    assert 18.0 < origin.run(30.0) < 30.0
    origin.places = 60
    origin.run(60.0)
    assert origin.run(30.0) > 54.0


def test_a_limit_goes_through_all_phases():
    origin = Origin(60)
    phases = {origin.law._law.phase}
    for places in (60, 20, 60):
        origin.places = places
        for _ in range(200):
            origin.run(0.2)
            phases.add(origin.law._law.phase)
    assert phases == set(Phase)


@pytest.mark.parametrize("settings", [{"mode": "monitor"}, {"ceiling": 25}])
def test_a_trial_whose_limit_is_reconfigured_has_no_result(settings):
    origin = Origin(60)
    while origin.law._law.phase is not Phase.HIGHER_TRIAL:
        origin.run(0.1)
    origin.law.reconfigure(ConcurrencySettings())
    assert origin.law._law.phase is Phase.HIGHER_TRIAL
    origin.law.reconfigure(ConcurrencySettings(**settings))
    assert origin.law._law.phase is Phase.STEADY


def test_the_capacity_is_known_once_the_limit_was_reached():
    origin = Origin()
    origin.demand = 10
    origin.run(30.0)
    assert origin.law.capacity.rate == 0.0
    origin.demand = 100
    origin.run(60.0)
    assert origin.law.capacity.rate == pytest.approx(300.0, rel=0.1)
    origin.demand = 10
    origin.run(300.0)
    assert origin.law.capacity.rate == pytest.approx(300.0, rel=0.1)


def test_pauses_between_bursts_change_neither_limit_nor_capacity():
    origin = Origin(20)
    origin.run(60.0)
    for _ in range(40):
        origin.rest(20.0)
        origin.run(2.0)
        assert 0.7 * 20 <= origin.law.limit <= 1.5 * 20
    assert origin.law.baseline == pytest.approx(0.1, rel=0.2)  # what ends after a burst has waited
    assert origin.law.capacity.rate == pytest.approx(200.0, rel=0.1)


def test_a_higher_limit_that_gains_nothing_returns_to_the_one_before():
    origin = Origin(30)
    returned, steady = 0, origin.law.limit
    while returned < 3:
        while origin.law._law.phase is not Phase.HIGHER_TRIAL:
            steady = origin.law.limit
            origin.run(1e-9)
        while origin.law._law.phase is Phase.HIGHER_TRIAL:
            assert origin.law.limit > steady
            origin.run(1e-9)
        if origin.law.reason is LimitReason.NO_GAIN:
            assert origin.law.limit == steady
            returned += 1


def window(requests: int, busy: float) -> Window:
    """Return a second in which 20 requests were in flight, of which an origin needs some."""
    return Window(1.0, requests, 20.0, 1.0, 0, 0, busy, {"": (20.0, requests)})


def test_an_extreme_part_of_a_measurement_begins_no_trial():
    law = LimitLaw(ConcurrencySettings(), DomainWindows())
    law.phase = Phase.STEADY
    law.close_window(window(20, 20.0), 1.0, lagged=False, now=0.0)  # began before the limit
    law.close_window(window(600, 14.5), 1.0, lagged=False, now=1.0)  # asks for 16, which needs 803 requests
    law.close_window(window(200, 5.0), 1.0, lagged=False, now=2.0)  # asks for 10, which would need 150
    assert (law.phase, law.limit) == (Phase.STEADY, 20.0)
    law.close_window(window(700, 19.0), 1.0, lagged=False, now=3.0)
    assert law.phase is Phase.LOWER_TRIAL
    assert law.limit >= 14.0


def test_domains_with_different_times_share_one_limit():
    origin = Origin(30)
    origin.domains = (("pages", 0.2), ("searches", 1.8))
    origin.run(60.0)
    assert 27.0 <= origin.run(60.0) <= 45.0


def test_responses_slower_than_the_healthy_latency_lower_the_limit():
    origin = Origin(30, healthy_latency=0.1)  # the mean: no limit is low enough
    origin.run(60.0)
    assert origin.law.limit == 4.0
    assert origin.law.reason is LimitReason.SLOW


@pytest.mark.parametrize(("lag", "is_overload"), [(0.049, False), (0.051, True)])
def test_a_lag_of_the_event_loop_above_50_ms_is_overload(lag, is_overload):
    origin = Origin(30)
    origin.run(60.0)
    reasons = set()
    for _ in range(50):
        origin.law.lagged(lag)
        origin.run(0.2)
        reasons.add(origin.law.reason)
    assert (LimitReason.EVENT_LOOP in reasons) == is_overload
    assert (origin.law.limit < 20.0) == is_overload


def test_a_monitored_limit_is_an_estimate_although_no_request_obeys_it():
    origin = Origin(30, mode="monitor")
    origin.is_limited = False
    origin.demand = 8
    origin.run(60.0)
    origin.demand = 90
    origin.run(30.0)
    assert 27.0 <= origin.run(30.0) <= 45.0
    assert origin.law.reason is LimitReason.ESTIMATE


def test_places_that_wait_for_a_timeout_are_no_queue():
    origin = Origin(30)
    origin.run(60.0)
    origin.timeouts = 0.3
    limits = set()
    for _ in range(300):
        origin.run(0.2)
        limits.add(origin.law.limit)
    assert min(limits) >= 27.0
