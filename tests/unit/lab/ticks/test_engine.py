"""The engine: order, calendar and network delay."""

from types import SimpleNamespace

import pytest

from headgate.lab.chance import Chance, Purpose
from headgate.lab.policies import Policy
from headgate.lab.ticks.agents import CalendarAgent, Counts, Route
from headgate.lab.ticks.engine import START, Engine, Origin
from headgate.lab.ticks.origins import Pace, new_server
from headgate.lab.ticks.settings import Cooling, Pollers
from headgate.release import NEVER


class Scripted(CalendarAgent):
    """Waits as its script says; None sends. Notes when it was asked and answered, in seconds since the start."""

    def __init__(self, number, script, first=0.5):
        super().__init__(number, Pollers(name="a", count=1, interval=1.0), Counts(), None)
        self.script, self.start, self.asked, self.taken = iter(script), first, [], []

    def first(self):
        return self.start

    def attempt(self, now):
        self.asked.append(now - START)
        return next(self.script)

    def answered(self, status, headers, now):
        self.taken.append((now - START, status))
        return next(self.script)


def engine(agents, *, ticks=20, length=1.0, delay=0, capacity=100.0):
    server = new_server(
        Cooling(capacity=capacity, cooling=0), Pace(capacity, length, 0.0), Chance(0).stream(Purpose.ORIGIN)
    )
    origin = Origin(server, delay)
    for agent in agents:
        agent.use([Route(origin, Policy(agent, server, None))], agent.number)
    one = Engine([], agents, [origin], length=length, ticks=ticks)
    one.run(lambda _tick: None, record=True)
    return one, origin


def test_an_agent_is_asked_in_the_first_tick_that_is_not_before_its_time_and_at_least_one_tick_later():
    agent = Scripted(0, [0.0, 0.1, 1.0, 1.1, 3.0, NEVER])
    one, _ = engine([agent])
    assert agent.asked == [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    assert one.refused[:10] == [0, 1, 1, 1, 1, 0, 1, 0, 0, 1]


def test_rounding_errors_do_not_make_an_agent_wait_one_tick_more():
    agent = Scripted(0, [0.3, 0.3, NEVER], first=0.1)
    engine([agent], length=0.1)  # 0.3 / 0.1 is 2.9999999999999996
    assert agent.asked == pytest.approx([0.1, 0.4, 0.7], abs=1e-6)
    agent = Scripted(0, [0.7, NEVER], first=0.1)
    engine([agent], length=0.1)  # 0.7 / 0.1 is 6.999999999999999
    assert agent.asked == pytest.approx([0.1, 0.8], abs=1e-6)
    agent = Scripted(0, [0.6, NEVER], first=0.2)
    engine([agent], length=0.2)  # 0.6 / 0.2 is 2.9999999999999996, and 3 * 0.2 is 0.6000000000000001
    assert agent.asked == pytest.approx([0.2, 0.8], abs=1e-6)


def test_without_a_delay_an_answer_arrives_in_the_tick_of_its_request():
    agent = Scripted(0, [None, 2.0, None, NEVER])
    _, origin = engine([agent])
    assert agent.asked == [1.0, 3.0]
    assert agent.taken == [(1.0, 200), (3.0, 200)]
    assert origin.load[:4] == [0, 1, 0, 1]


def test_a_request_and_its_answer_take_the_network_delay():
    agent = Scripted(0, [None, 1.0, None, NEVER])
    _, origin = engine([agent], delay=3)
    assert agent.asked == [1.0, 8.0]
    assert agent.taken == [(7.0, 200), (14.0, 200)]
    assert [tick for tick, count in enumerate(origin.load) if count] == [4, 11]


def test_agents_are_asked_in_the_order_in_which_they_were_entered():
    first, second = Scripted(0, [2.0, None, NEVER]), Scripted(1, [1.0, 1.0, None, NEVER])
    engine([first, second], capacity=1.0)
    # Entered for the third tick: the first agent in the first tick, the second one in the second.
    assert first.taken == [(3.0, 200)]
    assert second.taken == [(3.0, 503)]


def test_holds_are_the_agents_that_wait_after_a_refusal():
    agents = [Scripted(0, [3.0, None, NEVER]), Scripted(1, [5.0, None, NEVER]), Scripted(2, [NEVER])]
    one, _ = engine(agents, ticks=8)
    assert one.holds == [0, 3, 3, 3, 2, 2, 1, 1]


def test_what_is_due_after_the_last_tick_is_dropped():
    agent = Scripted(0, [1e300])
    engine([agent], ticks=3)
    assert agent.asked == [1.0]
    assert Scripted(0, [], first=NEVER).first() == NEVER
    never = Scripted(0, [], first=NEVER)
    engine([never], ticks=3)
    assert never.asked == []


def test_signals_of_the_operator_are_recorded_in_each_tick():
    agent = Scripted(0, [NEVER])
    server = new_server(Cooling(capacity=1.0), Pace(1.0, 1.0, 0.0), None)
    server.policy = SimpleNamespace(
        admit=lambda arrivals, now: (arrivals, ()), signals=lambda: {"fraction": 0.5}, answer=None
    )
    origin = Origin(server, 0)
    agent.use([Route(origin, None)], 0)
    Engine([], [agent], [origin], length=1.0, ticks=3).run(lambda _tick: None, record=True)
    assert origin.signals == {"fraction": [0.5] * 3}
