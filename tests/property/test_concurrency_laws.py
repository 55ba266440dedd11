"""Laws of the concurrency limit: no permit is lost, and each waiting request is decided on once."""

import random

from hypothesis import given
from hypothesis import strategies as st

from headgate.limit.concurrency import PRIORITIES, ConcurrencyLimit, ConcurrencySettings, Waiting
from headgate.limit.concurrency.overload import MAX_RETRY_AFTER

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "arrive", "end", "leave", "awake", "expire", "reconfigure"]),
        st.sampled_from([0.0, 0.001, 0.02, 0.3, 5.0]),
        st.integers(0, 1000),
    ),
    max_size=80,
)
SETTINGS = st.builds(ConcurrencySettings, max=st.integers(1, 5), queue=st.integers(0, 12))


class Caller:
    """Carries out decisions, and checks each of them."""

    def __init__(self, settings, seed):
        self.limit = ConcurrencyLimit(settings, random.Random(seed).random)
        self.now = 100.0
        self.waiting = {}
        self.entered = self.ended = self.rejected = 0

    def arrive(self, number):
        if self.limit.start():
            self.entered += 1
            return
        request = Waiting(PRIORITIES[number % 4], b"%d" % (number % 7), self.now)
        self.waiting[request] = self.now
        self.carry_out(self.limit.queue(request, now=self.now))

    def end(self, number):
        if self.limit.in_flight:
            self.ended += 1
            self.carry_out(self.limit.end(now=self.now))

    def leave(self, number):
        if self.waiting:
            request = list(self.waiting)[number % len(self.waiting)]
            del self.waiting[request]
            self.carry_out(self.limit.leave(request, now=self.now))
            assert not self.limit.leave(request, now=self.now)

    def awake(self, number):
        self.carry_out(self.limit.awake(now=self.now))

    def expire(self, number):
        if self.waiting and number % 3 == 0:
            self.carry_out(self.limit.expire(list(self.waiting)[number % len(self.waiting)], now=self.now))

    def reconfigure(self, number):
        if number % 5 == 0:
            settings = ConcurrencySettings(max=1 + number % 6, queue=number % 13)
            self.carry_out(self.limit.reconfigure(settings, now=self.now))

    def carry_out(self, decisions):
        for decision in decisions:
            del self.waiting[decision.request]  # a second decision on a request fails here
            if decision.starts:
                self.entered += 1
            else:
                self.rejected += 1
                assert decision.retry_after == int(decision.retry_after)
                assert 1 <= decision.retry_after <= MAX_RETRY_AFTER

    def check(self):
        limit = self.limit
        assert limit.in_flight == self.entered - self.ended >= 0
        assert limit.state.queued == len(self.waiting) <= limit.settings.queue
        assert limit.state.waiting == {
            priority: sum(one.priority == priority for one in self.waiting) for priority in PRIORITIES
        }
        assert sum(sum(reasons.values()) for reasons in limit.state.rejected.values()) == self.rejected
        assert not self.waiting or limit.in_flight >= limit.limit, "a request waits, and a permit is free"


@given(SETTINGS, STEPS, st.integers(0, 100))
def test_permits_and_decisions_are_neither_lost_nor_given_twice(settings, steps, seed):
    caller = Caller(settings, seed)
    for action, pause, number in steps:
        caller.now += pause
        getattr(caller, action)(number)
        caller.check()


@given(SETTINGS, STEPS, st.integers(0, 100))
def test_a_request_that_waits_is_decided_on_although_no_other_request_ends(settings, steps, seed):
    caller = Caller(settings, seed)
    for action, pause, number in steps:
        caller.now += pause
        getattr(caller, action)(number)
    for _ in range(100):
        if not caller.waiting:
            break
        assert caller.now <= caller.limit.wakeup <= caller.now + 3600.0
        caller.now = caller.limit.wakeup
        caller.awake(0)
        assert caller.limit.wakeup > caller.now
    assert not caller.waiting
