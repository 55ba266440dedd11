"""The gate before an origin."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.lab.chance import Chance
from headgate.lab.policies.gate import Gate, ReturnTimes, rule_of

NOW = 1_700_000_000.0


def a_gate(capacity=100.0, **settings):
    return Gate(capacity, refusal_cost=0.25, draw=Chance(1).stream("gate"), **settings)


def run(gate, arrivals, ticks, *, start=0):
    """Run ticks with `arrivals(tick)` requests, `(is_automated, name)`; return forwarded ones by tick, and refusals."""
    forwarded, refused = [], []
    for tick in range(start, start + ticks):
        for is_automated, name in arrivals(tick):
            seconds = gate.admit((is_automated, name), is_automated=is_automated, now=NOW + tick)
            if seconds:
                refused.append((tick, name, seconds))
        forwarded.append(gate.forward(until=NOW + tick + 1, seconds=1.0))
    return forwarded, refused


def automated(count):
    return lambda tick: [(True, (tick, number)) for number in range(count)]


@pytest.mark.parametrize(("rate", "expected"), [(52.63157, 52_632), (0.5, 500), (100.0, 100_000), (1e-9, 1)])
def test_a_rule_may_have_any_rate(rate, expected):
    rule = rule_of(rate, burst=3)
    assert (rule.count, rule.period_ms, rule.burst) == (expected, 1_000_000, 3)
    assert rule.exact_interval == Fraction(1_000, expected)


def test_requests_within_the_capacity_are_forwarded_at_once():
    forwarded, refused = run(a_gate(), automated(100), 20)
    assert [len(requests) for requests in forwarded] == [100] * 20
    assert not refused


def test_a_fraction_of_a_request_is_not_lost():
    forwarded, refused = run(a_gate(capacity=52.6), lambda tick: automated(52 + tick % 2)(tick), 50)
    assert sum(map(len, forwarded)) == 50 * 52.5
    assert not refused
    forwarded, refused = run(a_gate(capacity=52.6), automated(54), 50)
    assert sum(map(len, forwarded[10:20])) == 526
    assert not refused


def test_automated_requests_wait_at_most_the_maximum_delay_and_are_then_refused():
    gate = a_gate()
    forwarded, refused = run(gate, lambda tick: automated(1_000)(tick) if tick == 0 else [], 10)
    # 100 at once, 500 within five seconds; what the 400 refusals cost is not there for the first.
    assert len(refused) == 400
    assert len(forwarded[0]) == 0
    assert sum(map(len, forwarded[:7])) == 600
    assert gate.queued == 0


def test_what_refusals_cost_is_not_forwarded():
    forwarded, refused = run(a_gate(), automated(140), 60)
    later = sum(len(requests) for requests in forwarded[20:])
    refusals = sum(tick >= 20 for tick, *_ in refused)
    assert refusals > 1_000
    assert later + 0.25 * refusals == pytest.approx(40 * 100, rel=0.01)


def test_refusals_that_cost_more_than_the_capacity_leave_no_debt():
    gate = a_gate()
    forwarded, _ = run(gate, lambda tick: automated(2_000)(tick) if tick < 3 else [], 8)
    assert [len(requests) for requests in forwarded[:3]] == [0, 0, 0]
    assert len(forwarded[3]) == 100


def test_people_come_first_and_are_not_refused():
    def arrivals(tick):
        return [*automated(200)(tick), *((False, (tick, number)) for number in range(30))]

    forwarded, refused = run(a_gate(), arrivals, 40)
    for tick, requests in enumerate(forwarded):
        assert requests[:30] == [(False, (tick, number)) for number in range(30)]
    assert len(refused) > 1_000
    assert all(name in automated(200)(name[0])[name[1]] for _, name, _ in refused)


def test_what_people_request_is_taken_from_automated_traffic():
    def arrivals(tick):
        return [*automated(90)(tick), *((False, (tick, number)) for number in range(50))]

    forwarded, _ = run(a_gate(), arrivals, 60)
    counts = [Counter(is_automated for is_automated, _ in requests) for requests in forwarded[20:]]
    assert all(count[False] == 50 for count in counts)
    assert all(count[True] <= 50 for count in counts)
    # a automated requests are forwarded and 90 - a refused: 50 + a + (90 - a) / 4 = 100.
    assert sum(count[True] for count in counts) / len(counts) == pytest.approx(36.7, abs=1.0)


def test_a_crowd_of_people_waits_and_is_refused_beyond_the_longest_queue():
    gate = a_gate()
    forwarded, refused = run(gate, lambda tick: [(False, number) for number in range(1_000)] if tick == 0 else [], 8)
    assert len(refused) == 500
    assert sum(map(len, forwarded)) == 500


def test_refused_requests_return_at_the_rate_of_the_capacity():
    returns = ReturnTimes(50.0, spread=0.0, draw=lambda: 0.5)
    seconds = [returns.retry_after(now=NOW) for _ in range(500)]
    assert seconds == sorted(seconds)
    assert seconds[0] == 1
    assert seconds[-1] == 10
    assert max(Counter(seconds).values()) <= 51


def test_a_place_in_the_queue_of_returns_is_free_again_after_its_time():
    returns = ReturnTimes(50.0, spread=0.0, draw=lambda: 0.5)
    for _ in range(500):
        returns.retry_after(now=NOW)
    assert returns.retry_after(now=NOW + 60) == 1


def test_a_return_is_not_before_the_release():
    returns = ReturnTimes(50.0, spread=0.0, draw=lambda: 0.5)
    assert returns.retry_after(now=NOW, release=NOW + 7.2) == 8


def test_jitter_spreads_returns():
    draw = Chance(3).stream("gate")
    returns = ReturnTimes(1_000.0, spread=10.0, draw=draw)
    seconds = Counter(returns.retry_after(now=NOW) for _ in range(1_000))
    assert max(seconds.values()) < 1.5 * 1_000 / 10


@given(
    capacity=st.floats(0.3, 40.0),
    arrivals=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=30),
    seed=st.integers(0, 100),
)
def test_each_request_is_forwarded_once_or_refused_and_no_more_than_the_capacity(capacity, arrivals, seed):
    gate = Gate(capacity, refusal_cost=0.25, draw=Chance(seed).stream("gate"))
    sent, refused, forwarded = [], [], []
    for tick in range(len(arrivals) + 20):
        programs, people = arrivals[tick] if tick < len(arrivals) else (0, 0)
        requests = [(number < people, tick, number) for number in range(people + programs)]
        seconds = [gate.admit(request, is_automated=not request[0], now=NOW + tick) for request in requests]
        refused += [request for request, retry_after in zip(requests, seconds, strict=True) if retry_after]
        sent += requests
        now_forwarded = gate.forward(until=NOW + tick + 1, seconds=1.0)
        assert now_forwarded == sorted(now_forwarded, key=lambda request: not request[0])  # people first
        forwarded += now_forwarded
        assert len(now_forwarded) <= capacity + 1.0
        assert len(forwarded) <= capacity * (tick + 1) + 1e-6
    assert sorted([*refused, *forwarded]) == sorted(sent) or gate.queued
    assert len(refused) + len(forwarded) + gate.queued == len(sent)
    assert len(set(forwarded)) == len(forwarded)
    for people in (True, False):
        in_order = [request for request in forwarded if request[0] is people]
        assert in_order == sorted(in_order)
