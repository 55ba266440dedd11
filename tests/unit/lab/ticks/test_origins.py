"""Servers in discrete time."""

from types import SimpleNamespace

import pytest

from headgate.lab.chance import Chance, Purpose
from headgate.lab.policies import Admission, OriginPolicy
from headgate.lab.ticks.origins import Pace, new_server
from headgate.lab.ticks.settings import Cooling, Metered, Queue


def server(settings, *, errors=0.0):
    return new_server(settings, Pace(settings.capacity, 1.0, errors), Chance(0).stream(Purpose.ORIGIN))


def agents(number):
    return [SimpleNamespace(number=index, is_automated=index % 2 == 0) for index in range(number)]


def statuses(one, number, now=0.0):
    """The statuses of a tick's requests, by agent."""
    answers = one.answer(agents(number), now)
    return [status for _, status in sorted((agent.number, status) for agent, status, _ in answers)]


def test_a_cooling_server_refuses_what_exceeds_its_capacity_and_then_everything_for_some_ticks():
    one = server(Cooling(capacity=3.0, cooling=2))
    assert statuses(one, 3) == [200] * 3
    assert statuses(one, 4) == [200, 200, 200, 503]
    assert statuses(one, 1) == [503]
    assert statuses(one, 2) == [503, 503]
    assert statuses(one, 2) == [200, 200]


def test_an_overload_while_cooling_begins_the_cooling_anew():
    one = server(Cooling(capacity=3.0, cooling=2))
    assert [set(statuses(one, count)) for count in (4, 4, 1, 1, 1)] == [{200, 503}, {503}, {503}, {503}, {200}]


def test_a_metered_server_serves_what_the_refusals_leave_of_its_capacity():
    # A refusal costs a quarter of a request.
    for count, served in ((100, 100), (101, 99), (200, 66), (300, 33), (400, 0), (1000, 0)):
        one = server(Metered(capacity=100.0, refusal=0.25))
        assert statuses(one, count).count(200) == served
    free = server(Metered(capacity=100.0, refusal=0.0))
    assert statuses(free, 1000).count(200) == 100
    costly = server(Metered(capacity=100.0, refusal=1.0))
    assert statuses(costly, 101).count(200) == 0


def test_parts_of_requests_are_served_in_later_ticks_and_idle_capacity_is_not():
    one = server(Metered(capacity=2.5, refusal=0.0))
    assert [statuses(one, 9).count(200) for _ in range(4)] == [2, 3, 2, 3]
    assert [statuses(one, count).count(200) for count in (0, 0, 9)] == [0, 0, 3]


def test_which_requests_a_metered_server_serves_is_random():
    one = server(Metered(capacity=10.0, refusal=0.0))
    served = [0] * 20
    for _ in range(1_000):
        for agent, status, _ in one.answer(agents(20), 0.0):
            served[agent.number] += status == 200
    assert all(420 < count < 580 for count in served)


def test_refusals_of_a_gate_cost_a_metered_server_as_much_as_its_own():
    class Refuser(OriginPolicy):
        def admit(self, arrivals, *, now):
            return Admission(arrivals[:10], [(agent, 429, (("Retry-After", "1"),)) for agent in arrivals[10:]])

    one = server(Metered(capacity=10.0, refusal=0.25))
    one.policy = Refuser(one, None)
    # Four refusals leave room for nine of the ten: eight, and the server's own refusal of two.
    counts = statuses(one, 14)
    assert [counts.count(status) for status in (200, 503, 429)] == [8, 2, 4]


def test_a_queue_server_serves_in_order_and_refuses_the_last_ones():
    one = server(Queue(capacity=2.0, queue=3))
    first = agents(6)
    answers = [(agent.number, status) for agent, status, _ in one.answer(first, 0.0)]
    assert answers == [(0, 200), (1, 200), (5, 503)]
    assert one.waiting == 3
    assert [(agent.number, status) for agent, status, _ in one.answer([], 1.0)] == [(2, 200), (3, 200)]
    assert [(agent.number, status) for agent, status, _ in one.answer([], 2.0)] == [(4, 200)]
    assert one.waits == [(2, 0.0), (2, 2.0), (1, 2.0)]


def test_a_server_that_is_down_answers_503_and_drops_its_queue():
    one = server(Queue(capacity=2.0, queue=3))
    one.outages.append((0.5, 2.0))
    one.answer(agents(5), 0.0)
    assert [status for _, status, _ in one.answer([], 1.0)] == [503] * 3
    assert one.waiting == 0
    assert one.answer([], 2.0) == []
    assert not one.is_down(0.5)
    assert one.is_down(0.6)


@pytest.mark.parametrize("settings", [Cooling(capacity=100.0), Metered(capacity=100.0), Queue(capacity=100.0, queue=0)])
def test_a_share_of_the_requests_is_served_in_vain(settings):
    one = server(settings, errors=0.05)
    errors = sum(statuses(one, 100).count(500) for _ in range(200))
    assert 850 < errors < 1150


def test_a_policy_of_the_operator_may_replace_answers():
    class Gateway(OriginPolicy):
        def answer(self, agent, status, headers, *, now):
            return agent, 502 if self.origin.is_down(now) else status, headers

    one = server(Metered(capacity=10.0))
    one.policy = Gateway(one, None)
    one.outages.append((-1.0, 1.0))
    assert statuses(one, 2, now=0.0) == [502, 502]
    assert statuses(one, 2, now=1.0) == [200, 200]
