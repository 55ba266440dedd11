"""A new master computes from re-sent accounting what its predecessor had computed, and in any order no longer hold."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Accounting, Rule
from headgate.limit.history import ALGORITHMS, new_history
from headgate.link.announcement import announcement, split_resent_topic
from headgate.link.batch import decode_batch
from headgate.link.recent_accounting import RecentAccounting
from headgate.link.resender import Resender
from headgate.release import ASAP, Status

# Eighths of a second are exact in a float at any date, so these tests concern the rule, not the rounding.
EPOCH = 1_700_000_000.0
RATES = st.sampled_from(["1/s", "2/s", "4/s", "15/min", "1 per 500ms", "30/min", "1/2s"])
GAPS = st.lists(st.integers(0, 60).map(lambda eighths: eighths / 8), min_size=1, max_size=30)


@st.composite
def rules(draw):
    return Rule.parse(f"{draw(RATES)} burst {draw(st.integers(1, 6))}")


def admit(algorithm, gaps, max_delay):
    """Return the history of a master that sees all requests of a client, and the requests that were let through.

    Each of those is its time of arrival and its timestamp.
    """
    history, release, now, admitted = new_history(), ASAP, EPOCH, []
    for gap in gaps:
        now += gap
        if release - now > max_delay:
            continue
        timestamp = max(now, release)
        release = max(release, algorithm.record(history, timestamp, now))
        admitted.append((now, timestamp))
    return history, admitted


def replay(algorithm, admitted, now, history=None):
    """Return the history and the release time of a master to which these requests were re-sent."""
    history = history or new_history()
    release = ASAP
    for received, timestamp in admitted:
        release = max(release, algorithm.replay(history, timestamp, received, now))
    return history, release


@pytest.mark.parametrize("name", ALGORITHMS)
@given(rule=rules(), gaps=GAPS, later=st.integers(0, 200), max_delay=st.sampled_from([0.0, 2.0]))
def test_requests_of_one_gatekeeper_give_the_history_of_the_predecessor(name, rule, gaps, later, max_delay):
    algorithm = ALGORITHMS[name]([rule])
    before, admitted = admit(algorithm, gaps, max_delay)
    now = admitted[-1][0] + later / 8
    after, _ = replay(algorithm, admitted, now)
    if name == "smockron" and max_delay:  # the expiry is the latest, since requests may arrive in any order
        before, after = before[:3], after[:3]
    assert after == before


@given(rule=rules(), gaps=GAPS, later=st.integers(0, 200), data=st.data())
def test_a_log_is_the_same_whatever_the_order(rule, gaps, later, data):
    algorithm = ALGORITHMS["log"]([rule])
    before, admitted = admit(algorithm, gaps, 0.0)
    now = admitted[-1][0] + later / 8
    after, _ = replay(algorithm, data.draw(st.permutations(admitted)), now)
    assert after == before


@pytest.mark.parametrize("name", ["gcra", "smockron"])
@given(rule=rules(), gaps=GAPS, later=st.integers(0, 200), live=st.integers(0, 3), data=st.data())
def test_in_any_order_a_hold_is_between_the_true_one_and_that_of_the_document(name, rule, gaps, later, live, data):
    """The last requests may arrive live, before those that are re-sent."""
    algorithm = ALGORITHMS[name]([rule])
    _, admitted = admit(algorithm, gaps, 0.0)
    now = admitted[-1][0] + later / 8
    admitted = [(received, timestamp) for received, timestamp in admitted if timestamp > now - rule.window]
    history, first = new_history(), admitted[len(admitted) - live :]
    for received, timestamp in first:
        algorithm.record(history, timestamp, received)
    rest = data.draw(st.permutations(admitted[: len(admitted) - len(first)]))
    _, release = replay(algorithm, rest, now, history)
    in_order, _ = replay(algorithm, admitted, now)
    if admitted:
        assert following(name, history, rule) >= following(name, in_order, rule)
    if release > now:
        assert len(admitted) >= rule.burst
        assert release <= now + rule.interval


def following(name, history, rule):
    """Return the instant in a history that decides on the next release."""
    return history[1] if name == "gcra" else history[1] + history[2] * rule.interval * 1_000


@pytest.mark.parametrize("name", ALGORITHMS)
@given(rule=rules(), gaps=GAPS, extra=st.integers(1, 60))
def test_requests_that_no_master_limited_cost_one_interval_at_most(name, rule, gaps, extra):
    """Without a master all requests are accepted, more than the rule permits: they give no hold longer than its own."""
    algorithm = ALGORITHMS[name]([rule])
    _, admitted = admit(algorithm, gaps, 0.0)
    now = admitted[-1][0]
    _, release = replay(algorithm, admitted + [(now, now)] * extra, now)
    assert release <= now + rule.interval


@pytest.mark.parametrize("name", ["gcra", "smockron"])
@given(rule=rules(), gaps=GAPS, later=st.integers(0, 200), forgotten=st.integers(0, 30))
def test_a_held_client_has_no_fresh_budget_whatever_its_older_requests(name, rule, gaps, later, forgotten):
    """They are not sent again, but these algorithms count them: the hold shows how much is left."""
    algorithm = ALGORITHMS[name]([rule])
    before, admitted = admit(algorithm, gaps, 0.0)
    _, hold = replay(algorithm, admitted, admitted[-1][0])
    now = admitted[-1][0] + later / 8
    after, _ = replay(algorithm, admitted[min(forgotten, len(admitted) - 1) :], now)
    if hold > now:
        algorithm.replay_hold(after, hold)
        assert following(name, after, rule) == following(name, before, rule)


class Bus:
    """A gatekeeper and two masters connected to it directly; each master notes the verdicts that it gets.

    The master of a connection is replaced by one with other digits, or is lost and comes back.
    """

    def __init__(self):
        self.recent = RecentAccounting(["api", "web"])
        self.resender = Resender(self.recent)
        self.masters = {"a": self.digits(0), "b": self.digits(1)}
        self.up = {}
        self.routes = dict.fromkeys(["api", "web"])
        self.got = defaultdict(list)
        self.number = 0

    @staticmethod
    def digits(number):
        return announcement(f"{number:016x}")

    def account(self, domain):
        name = b"%d" % self.number
        self.number += 1
        self.recent.extend([Accounting(domain, Status.ACCEPTED, name, EPOCH, EPOCH)])
        if self.routes[domain] is not None:
            self.got[self.up[self.routes[domain]], domain].append(name)

    def connect(self, connection, *, is_new):
        if is_new:
            self.masters[connection] = self.digits(self.number + 2)
            self.number += 1
        self.up[connection] = self.masters[connection]
        self.update(arrived=connection)

    def lose(self, connection):
        self.up.pop(connection, None)
        self.update()

    def update(self, arrived=None):
        preferred = {"api": ("a", "b"), "web": ("b", "a")}
        for domain, names in preferred.items():
            self.routes[domain] = next((name for name in names if name in self.up), None)
        announcements = {name: [announced] for name, announced in self.up.items()}
        self.resender.update(self.routes, announcements, arrived=arrived, now=EPOCH + 1)

    def send(self, most):
        for _ in range(most):
            batch = self.resender.next_batch(lambda *_: ASAP)
            if batch is None:
                return
            connection, frames, _ = batch
            announced, domain = split_resent_topic(frames[0])
            assert self.up[connection] == announced
            self.got[announced, domain] += [record[1] for record in decode_batch(frames[1])[0]]
            self.resender.sent()


EVENTS = st.one_of(
    st.tuples(st.just("account"), st.sampled_from(["api", "web"])),
    st.tuples(st.sampled_from(["replaced", "back", "lost"]), st.sampled_from(["a", "b"])),
    st.tuples(st.just("send"), st.just("")),
)


@given(st.lists(EVENTS, max_size=40))
def test_the_owner_of_a_domain_has_each_verdict_exactly_once(events):
    bus = Bus()
    for event, subject in events:
        if event == "account":
            bus.account(subject)
        elif event == "lost":
            bus.lose(subject)
        elif event == "send":
            bus.send(1)
        elif subject not in bus.up:
            bus.connect(subject, is_new=event == "replaced")
    bus.send(1_000)
    for names in bus.got.values():
        assert len(set(names)) == len(names)
    for domain, connection in bus.routes.items():
        if connection is not None:
            every = [one.identifier for one in bus.recent.between(domain, 0, bus.number, now=EPOCH)]
            assert sorted(bus.got[bus.up[connection], domain]) == sorted(every)
