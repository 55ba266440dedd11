"""Traffic advice alone."""

import pytest

from headgate.advice import parse_advice
from headgate.lab.chance import Chance
from headgate.lab.policies.advice import MAX_AGE, PERIOD, Advice, AdviceReader, AdviceResource
from headgate.lab.policies.together import Together
from tests.unit.lab.policies.worlds import NOW, AgentStub, origin_under


def arrivals(automated, people=0):
    return [AgentStub(number) for number in range(automated)] + [
        AgentStub(10_000 + number, is_automated=False) for number in range(people)
    ]


def learned(resource, *, automated, people=0, seconds=120):
    """Let agents that fetch at their own times send `automated` requests a second, times the published fraction."""
    fractions = []
    for second in range(seconds):
        now = NOW + second
        for agent in range(second % 60, 600, 60):
            resource.fetch(agent, now=now)
        fractions.append(resource.fraction)
        in_force = sum(fractions[-60:]) / len(fractions[-60:])
        resource.arrived(arrivals(round(automated * in_force), people), now=now)
    return resource.fraction


def test_the_document_is_what_a_parser_reads():
    resource = AdviceResource(100.0)
    response = resource.fetch(1, now=NOW)
    assert response.status == 200
    assert response.fields[0] == ("Content-Type", "application/trafficadvice+json")
    assert ("Cache-Control", "max-age=60") in response.fields
    assert parse_advice(response.body.decode(), ["AnyBot", "*"]).fraction == 1.0


def test_an_origin_with_less_load_than_capacity_wants_everything():
    assert learned(AdviceResource(100.0), automated=50, people=10) == 1.0


@pytest.mark.parametrize(("automated", "people"), [(200, 10), (400, 20), (190, 50)])
def test_the_fraction_is_what_people_leave_of_the_capacity(automated, people):
    resource = AdviceResource(100.0)
    fraction = learned(resource, automated=automated, people=people, seconds=300)
    assert fraction * automated + people == pytest.approx(97.0, rel=0.1)
    entry = parse_advice(resource.fetch(1, now=NOW + 300).body.decode(), ["AnyBot", "*"])
    assert entry.fraction == pytest.approx(fraction, abs=1e-4)


def test_while_the_server_is_down_the_document_stays():
    resource = AdviceResource(100.0)
    before = learned(resource, automated=200, seconds=200)
    for second in range(200, 400):
        resource.fetch(second % 600, now=NOW + second)
        resource.arrived([], now=NOW + second, frozen=True)
    assert resource.fraction == before < 1.0


class _Served:
    """An origin that serves one document and counts the fetches."""

    def __init__(self, body):
        self.body, self.fetches = body, []

    def fetch_advice(self, agent, *, now):
        self.fetches.append(now)
        response = AdviceResource(1.0).fetch(agent, now=now)
        return response._replace(body=self.body) if self.body else response._replace(status=503)


def reader(origin, draw):
    return AdviceReader(7, origin, draw, now=NOW)


def test_an_agent_is_free_until_its_first_fetch_and_then_obeys():
    origin = _Served(b'[{"user_agent": "*", "disallow": true}]')
    agent = reader(origin, lambda: 0.5)
    assert agent.permits(now=NOW + 29.0)
    assert not origin.fetches
    assert not agent.permits(now=NOW + 30.0)
    assert origin.fetches == [NOW + 30.0]


def test_an_agent_fetches_once_in_a_max_age():
    origin = _Served(b"[]")
    agent = reader(origin, lambda: 0.0)
    for second in range(int(3 * MAX_AGE)):
        assert agent.permits(now=NOW + second)
    assert origin.fetches == [NOW, NOW + 60, NOW + 120]


def test_an_agent_draws_for_every_request():
    agent = reader(_Served(b'[{"user_agent": "*", "fraction": 0.3}]'), Chance(1).stream("policy"))
    permitted = sum(agent.permits(now=NOW + 60 + second / 100) for second in range(10_000))
    assert permitted == pytest.approx(3_000, rel=0.05)


def test_of_an_unreachable_origin_the_last_entry_applies():
    origin = _Served(b'[{"user_agent": "*", "disallow": true}]')
    agent = reader(origin, lambda: 0.0)
    assert not agent.permits(now=NOW)
    origin.body = None
    assert not agent.permits(now=NOW + MAX_AGE)
    assert len(origin.fetches) == 2


def test_the_entry_for_every_agent_applies_and_that_for_another_does_not():
    agent = reader(_Served(b'[{"user_agent": "OtherBot", "disallow": true}]'), lambda: 0.0)
    assert agent.permits(now=NOW)


def test_people_are_not_asked_to_obey_and_automated_agents_are():
    origin = origin_under(Advice, capacity=10.0)
    origin.policy.fetch_advice = lambda agent, *, now: _Served(b'[{"user_agent": "*", "disallow": true}]').fetch_advice(
        agent, now=now
    )
    person = Advice(AgentStub(1, is_automated=False), origin, lambda: 0.0)
    program = Advice(AgentStub(2), origin, lambda: 0.0)
    assert person.release(now=NOW) <= NOW
    assert program.release(now=NOW) > NOW


def test_an_origin_without_a_gate_admits_everything_and_publishes_its_fraction():
    origin = origin_under(Advice, capacity=10.0)
    requests = arrivals(50, 5)
    admission = origin.policy.admit(requests, now=NOW)
    assert list(admission.admitted) == requests
    assert list(admission.refused) == []
    assert origin.policy.signals() == {"fraction": 1.0}


def test_an_origin_that_is_down_serves_no_advice():
    origin = origin_under(Advice)
    assert origin.policy.fetch_advice(1, now=NOW).status == 200
    origin.down = True
    assert origin.policy.fetch_advice(1, now=NOW).status == 0


@pytest.mark.parametrize("policy", [Advice, Together])
def test_requests_to_a_server_that_is_down_do_not_count(policy):
    origin = origin_under(policy, capacity=10.0)

    def fractions(seconds):
        for second in seconds:
            origin.policy.advice.fetch(second, now=NOW + second)
            origin.policy.admit(arrivals(100), now=NOW + second)
            yield origin.policy.signals()["fraction"]

    origin.down = True
    assert set(fractions(range(100))) == {1.0}
    origin.down = False
    assert min(fractions(range(100, 200))) < 0.5


def test_decisions_come_once_a_period():
    resource = AdviceResource(10.0)
    changes = []
    for second in range(60):
        resource.fetch(second, now=NOW + second)
        before = resource.fraction
        resource.arrived(arrivals(100), now=NOW + second)
        if resource.fraction != before:
            changes.append(second)
    assert changes
    assert all(second % PERIOD == 0 for second in changes)
