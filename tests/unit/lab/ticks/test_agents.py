"""Agents in discrete time: when they send, and what they do with responses."""

from types import SimpleNamespace

import pytest

from headgate.lab.policies import Policy
from headgate.lab.ticks.agents import Counts, Poller, Requester, Route, User, exponential
from headgate.lab.ticks.crawlers import Connection, Crawl, Prefetcher
from headgate.lab.ticks.settings import Crawlers, Interactive, Pollers, Prefetchers, Requesters
from headgate.release import NEVER


class Held(Policy):
    """Holds until `until`."""

    until = 0.0

    def release(self, *, now):
        return self.until


def draws(*numbers):
    return iter(numbers).__next__


def prepared(agent, policy=None):
    origin = SimpleNamespace(arrivals=[], useful=0)
    agent.use([Route(origin, policy or Policy(agent, origin, None))], agent.number)
    return agent


def held(agent, until):
    policy = Held(agent, None, None)
    policy.until = until
    return prepared(agent, policy)


def requester(draw, **settings):
    group = Requesters(name="client", count=1, **settings)
    return Requester(0, group, Counts(), draw, now=1000.0)


def test_a_requester_sends_once_its_last_attempt_is_longer_ago_than_its_interval():
    # The first attempt counts from 0.5 * 60 s after the start, minus the interval.
    agent = prepared(requester(draws(0.5), interval=10.0, start=60.0))
    sent = []
    for now in range(1000, 1060):
        if agent.attempt(float(now)):
            sent.append(now)
            agent.answered(200, (), float(now))
    assert sent == [1031, 1042, 1053]


def test_a_requester_that_waits_for_an_answer_sends_no_other_request():
    agent = prepared(requester(draws(0.0), interval=10.0))
    assert agent.attempt(1001.0)
    assert not agent.attempt(1012.0)
    agent.answered(503, (), 1012.0)
    assert agent.attempt(1013.0)


def test_the_interval_of_a_requester_is_drawn_in_every_tick():
    # 10 ± 4 s; the last attempt counts from 990.
    agent = prepared(requester(draws(0.0, 0.99, 0.0, 0.0, 0.0), interval=10.0, jitter=4.0))
    assert not agent.attempt(1003.0)  # 13.92 s
    assert agent.attempt(1003.0)  # 6 s
    agent.answered(200, (), 1003.0)
    assert not agent.attempt(1009.0)
    assert agent.attempt(1009.1)


def test_a_blocked_attempt_is_an_attempt():
    agent = held(requester(draws(0.0), interval=10.0), until=1012.0)
    assert not agent.attempt(1001.0)
    assert agent.counts.refused == 1
    assert not agent.attempt(1011.0)
    assert agent.counts.refused == 1
    assert not agent.attempt(1011.5)
    assert agent.counts.refused == 2
    assert agent.attempt(1021.6)


def test_the_perceived_downtime_is_from_the_last_success_to_the_first_after_a_failure():
    agent = prepared(requester(draws(0.0), interval=1.0))
    agent.answered(200, (), 1010.0)
    assert agent.perceived_downtime == 0.0
    agent.answered(503, (), 1020.0)
    agent.answered(200, (), 1030.0)
    assert agent.perceived_downtime == 20.0
    agent.answered(200, (), 1090.0)
    assert agent.perceived_downtime == 20.0
    assert (agent.counts.answered, agent.counts.failed, agent.origin.useful) == (3, 1, 3)


def test_a_requester_without_a_success_counts_from_the_start_of_the_world():
    agent = held(requester(draws(0.0), interval=1.0), until=1005.0)
    agent.attempt(1004.0)
    agent.answered(200, (), 1007.0)
    assert agent.perceived_downtime == 7.0


def poller(draw=None):
    return Poller(3, Pollers(name="heavy", count=1, interval=2.0), Counts(), draw)


def test_a_poller_waits_for_its_interval_after_each_answer():
    agent = prepared(poller(draws(0.25)))
    assert agent.first() == 0.5
    assert agent.attempt(0.0) is None
    assert agent.answered(200, (), 0.0) == 2.0
    assert agent.answered(503, (), 0.0) == 2.0
    assert agent.failures == 1
    assert agent.answered(500, (), 0.0) == 2.0
    assert agent.failures == 2
    assert agent.answered(200, (), 0.0) == 2.0
    assert agent.failures == 0


def test_a_poller_waits_until_its_policy_releases_it_and_at_least_for_its_interval():
    agent = held(poller(), until=10.0)
    assert agent.attempt(5.0) == 5.0
    assert agent.attempt(9.0) == 2.0
    assert agent.counts.refused == 2
    assert agent.attempt(10.0) is None


def test_a_policy_may_set_the_pause_after_a_failure():
    class Doubling(Policy):
        def pause(self, failures, *, now):
            return 2.0**failures

    for agent in (poller(), user(draws(0.5)), connection()):
        prepared(agent, Doubling(agent, None, None))
        if isinstance(agent, User):
            agent.attempt(0.0)
        assert [agent.answered(503, (), 1.0) for _ in range(3)] == [2.0, 4.0, 8.0]


def user(draw):
    return User(0, Interactive(name="people", count=1, think=100.0, retry=(10.0, 20.0)), Counts(), draw)


THOUGHT = exponential(100.0, draws(0.5))


def test_a_visit_that_fails_is_tried_again_until_its_deadline():
    agent = prepared(user(draws(0.5, 0.1, 0.5, 0.9, 0.5)))
    assert agent.first() == THOUGHT
    assert agent.attempt(0.0) is None
    assert agent.answered(503, (), 0.0) == 11.0
    assert agent.attempt(11.0) is None
    assert agent.answered(503, (), 11.0) == 15.0  # 26 s, before the deadline of 30 s
    assert agent.attempt(26.0) is None
    # The next one would be after the deadline: the user gives up then, and comes back after a while.
    assert agent.answered(503, (), 26.0) == 4.0 + THOUGHT
    assert (agent.counts.visited, agent.counts.lost, agent.counts.failed) == (0, 1, 3)
    assert agent.failures == 0


def test_a_visit_that_is_answered_ends():
    agent = prepared(user(draws(0.5)))
    agent.attempt(0.0)
    assert agent.answered(200, (), 0.0) == THOUGHT
    assert (agent.counts.visited, agent.counts.lost, agent.origin.useful) == (1, 0, 1)


def test_an_answer_after_the_deadline_is_useless():
    agent = prepared(user(draws(0.5)))
    agent.attempt(0.0)
    assert agent.answered(200, (), 31.0) == THOUGHT
    assert (agent.counts.visited, agent.counts.lost, agent.origin.useful) == (0, 1, 0)


def test_a_user_whose_browser_refuses_tries_again_after_the_release():
    agent = held(user(draws(0.0, 0.0, 0.5)), until=25.0)
    assert agent.attempt(0.0) == 25.0
    # The retry, in 10 s, is at the deadline: the user gives up then.
    assert agent.attempt(20.0) == 10.0 + THOUGHT
    assert (agent.counts.refused, agent.counts.lost) == (2, 1)


def connection(crawl=None, draw=None):
    group = Crawlers(name="bot", count=1, pages=5, connections=2, interval=1.0, retry=10.0, start=4.0)
    return Connection(0, group, Counts(), draw, crawl=crawl or Crawl(5))


def test_the_connections_of_a_crawler_share_its_pages():
    crawl = Crawl(3)
    one, two = (prepared(connection(crawl, draws(0.5))) for _ in range(2))
    assert one.first() == two.first() == 2.0
    assert one.attempt(0.0) is None
    assert one.answered(503, (), 0.0) == 10.0
    assert one.answered(200, (), 10.0) == 1.0
    assert two.answered(200, (), 10.0) == NEVER
    assert one.answered(200, (), 10.0) == NEVER
    assert crawl.fetched == 3


def test_a_crawler_with_fewer_pages_than_connections_uses_as_many_as_it_has_pages():
    crawl = Crawl(1)
    one, two = (connection(crawl, draws(0.5)) for _ in range(2))
    assert (one.first(), two.first()) == (2.0, NEVER)


def test_a_crawler_waits_until_its_policy_releases_it():
    assert held(connection(), until=60.0).attempt(0.0) == 60.0


def test_a_prefetch_that_fails_is_not_tried_again():
    group = Prefetchers(name="browser", count=1, think=100.0)
    agent = prepared(Prefetcher(0, group, Counts(), draws(0.5, 0.5, 0.5)))
    assert agent.first() == THOUGHT
    assert agent.attempt(0.0) is None
    assert agent.answered(503, (), 0.0) == THOUGHT
    assert agent.answered(200, (), 0.0) == THOUGHT
    agent = held(Prefetcher(0, group, Counts(), draws(0.5)), until=1.0)
    assert agent.attempt(0.0) == THOUGHT
    assert agent.counts.refused == 1


def test_an_agent_chooses_among_its_origins():
    agent = poller(draws(0.0, 0.99, 0.5))
    first, second = (SimpleNamespace(arrivals=[], useful=0) for _ in range(2))
    agent.use([Route(one, Policy(agent, None, None)) for one in (first, second)], 0)
    chosen = []
    for _ in range(3):
        agent.attempt(0.0)
        chosen.append(agent.origin)
    assert chosen == [first, second, second]


def test_the_shares_of_policies():
    assert Pollers(name="a", count=9, interval=1.0).sharing == 1
    assert Crawlers(name="a", count=9, pages=1, connections=4).size == 36
    assert Prefetchers(name="a", count=9, think=1.0, proxies=2).sharing == 5
    assert Prefetchers(name="a", count=9, think=3.0, proxies=20).sharing == 1
    assert Prefetchers(name="a", count=9, think=3.0).offered == pytest.approx(3.0)
