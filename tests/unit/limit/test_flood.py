"""A flood of new identifiers: what one request costs, and what has to go to make room.

Costs are counted in lines of Python executed, which are the same on every machine.
"""

import sys

import pytest

from headgate.limit import DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.release import Status

ONE = (Rule.parse("1/s burst 1"),)

MOST_LINES = 2_000
"""Lines that one request may execute; with 16 entries examined in holds and histories it takes about a fifth."""


def lines(call, *arguments, **keywords):
    """Return how many lines of Python `call` executes."""
    count = 0

    def trace(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*arguments, **keywords)
    finally:
        sys.settrace(before)
    return count


def full(bound, rule="1/min burst 1", *, now=100.0):
    """Return a gatekeeper with its master inside that has as many holds and histories as it keeps, all in force."""
    gatekeeper = Gatekeeper.embedded([Domain("api", (Rule.parse(rule),))], max_identifiers=bound)
    for number in range(bound):
        gatekeeper.admit("api", b"%d" % number, now=now)
    return gatekeeper


@pytest.mark.parametrize("bound", [1_000, 4_000])
@pytest.mark.parametrize("now", [100.0, 159.9, 161.0, 1e6])
def test_a_request_of_a_new_identifier_takes_a_bounded_number_of_steps(bound, now):
    """Whether all that is kept is in force, about to expire, or expired."""
    gatekeeper = full(bound)
    worst = max(lines(gatekeeper.admit, "api", b"new %d" % number, now=now) for number in range(200))
    assert worst < MOST_LINES


@pytest.mark.parametrize("bound", [1_000, 4_000])
def test_forgetting_a_few_takes_a_bounded_number_of_steps(bound):
    gatekeeper = full(bound)
    for now in (100.0, 1e6, 1e6):
        assert lines(gatekeeper.forget, now=now, most=10) < MOST_LINES
        assert lines(gatekeeper.master.forget, now=now, most=10) < MOST_LINES


@pytest.mark.parametrize("over", [10, 900])
def test_holds_in_force_stay_while_others_are_over(over):
    """As many new ones come as are over, wherever those stand among the others."""
    gatekeeper = Gatekeeper(max_holds=1_000)
    gone = {number * 7 % 1_000 for number in range(over)}
    for number in range(1_000):
        gatekeeper.obey(DelayUntil("api", b"%d" % number, 100.0 + number / 1_000 if number in gone else 1e6))
    gatekeeper.admit("api", b"somebody", now=200.0)
    for number in range(over):
        gatekeeper.obey(DelayUntil("api", b"new %d" % number, 300.0))
    held = [gatekeeper.held("api", b"%d" % number, now=200.0) == 1e6 for number in range(1_000)]
    assert held.count(True) == 1_000 - over
    assert gatekeeper.evicted == 0


@pytest.mark.parametrize("over", [10, 900])
def test_histories_in_force_stay_while_others_have_expired(over):
    """Of a domain whose window is a minute, and one whose window is a second and whose histories have expired."""
    master = Master([Domain("slow", (Rule.parse("1/min burst 1"),)), Domain("fast", ONE)], max_identifiers=1_000)
    gatekeeper = Gatekeeper(master.account)
    for number in range(1_000):
        gatekeeper.admit("fast" if number * 7 % 1_000 < over else "slow", b"%d" % number, now=100.0)
    for number in range(over):
        gatekeeper.admit("slow", b"new %d" % number, now=110.0)
    assert master.evicted == 0
    assert len(list(master.holds("slow", now=110.0))) == 1_000


@pytest.mark.parametrize("bound", [1, 2, 7, 15, 16, 17, 100, 1_001])
def test_as_many_are_kept_as_the_bound_says_and_one_goes_for_one(bound):
    master = Master([Domain("api", ONE), Domain("web", ONE)], max_identifiers=bound)
    gatekeeper = Gatekeeper(master.account, max_holds=bound)
    for number in range(3 * bound):
        gatekeeper.admit("web" if number % 3 else "api", b"%d" % number, now=100.0)
        assert len(master) == min(number + 1, bound)
        assert gatekeeper._tables.size == min(number + 1, bound)
        assert gatekeeper.held("web" if number % 3 else "api", b"%d" % number, now=100.0) == 101.0
    assert master.evicted == gatekeeper.evicted == 2 * bound


def test_what_ends_next_goes_first_and_from_the_fullest_domain():
    gatekeeper = Gatekeeper(max_holds=6)
    for number, release in enumerate([105.0, 103.0, 104.0, 106.0]):
        gatekeeper.obey(DelayUntil("api", b"%d" % number, release))
    for name in (b"a", b"b"):
        gatekeeper.obey(DelayUntil("web", name, 101.0))
    for number in range(2):
        gatekeeper.obey(DelayUntil("api", b"new %d" % number, 107.0))
    assert [name for name, _ in gatekeeper.top("api", now=100.0)] == [b"new 1", b"new 0", b"3", b"0"]
    assert len(gatekeeper.top("web", now=100.0)) == 2


def test_a_hold_that_was_prolonged_is_not_taken_for_one_that_is_over():
    gatekeeper = Gatekeeper(max_holds=3)
    for name, release in ((b"prolonged", 101.0), (b"over", 102.0), (b"in force", 1e6), (b"prolonged", 1e6)):
        gatekeeper.obey(DelayUntil("api", name, release))
    gatekeeper.admit("api", b"somebody", now=200.0)
    gatekeeper.obey(DelayUntil("api", b"new", 1e6))
    assert {name for name, _ in gatekeeper.top("api", now=200.0)} == {b"prolonged", b"in force", b"new"}
    assert gatekeeper.evicted == 0


def test_a_lower_bound_after_a_reload_is_reached_as_new_identifiers_come():
    old = Master([Domain("api", ONE)], max_identifiers=200)
    for number in range(200):
        old.record("api", Status.ACCEPTED, b"%d" % number, 100.0, 100.0)
    new = Master([Domain("api", ONE)], max_identifiers=50)
    new.adopt(old)
    assert len(new) == 200
    for number in range(20):
        new.record("api", Status.ACCEPTED, b"new %d" % number, 100.0, 100.0)
    assert len(new) == 50
    assert new.evicted == 170
