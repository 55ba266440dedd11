"""The throttle, the advice and a gate together."""

from headgate.advice import parse_advice
from headgate.http.date import retry_after
from headgate.lab.chance import Chance
from headgate.lab.policies.together import Together
from tests.unit.lab.policies.worlds import NOW, AgentStub, origin_under


def an_agent(origin, **fields):
    agent = AgentStub(**fields)
    return Together(agent, origin, Chance(1).stream("policy", agent.number))


def automated(count):
    return [AgentStub(number) for number in range(count)]


def people(count):
    return [AgentStub(10_000 + number, is_automated=False) for number in range(count)]


def test_the_gate_admits_people_first():
    origin = origin_under(Together, capacity=10.0)
    crowd, visitors = automated(30), people(4)
    admission = origin.policy.admit([*crowd, *visitors], now=NOW)
    assert admission.admitted[:4] == visitors
    assert admission.admitted[4:] == crowd[:6]
    assert not admission.refused
    assert origin.policy.admit([], now=NOW + 1).admitted == crowd[6:16]


def test_in_a_shorter_tick_the_gate_admits_less():
    origin = origin_under(Together, capacity=10.0, tick=0.5)
    crowd = automated(30)
    assert origin.policy.admit(crowd, now=NOW).admitted == crowd[:5]
    assert origin.policy.admit([], now=NOW + 0.5).admitted == crowd[5:10]


def test_the_gate_refuses_beyond_its_longest_delay_with_429_and_the_end_of_the_backlog():
    origin = origin_under(Together, capacity=10.0)
    admission = origin.policy.admit(automated(100), now=NOW)
    # 10 in a burst, 50 delayed by up to five seconds.
    assert len(admission.refused) == 40
    for agent, status, headers in admission.refused:
        assert agent.number >= 60
        assert status == 429
        ((name, value),) = headers
        assert name == "Retry-After"
        assert NOW + 5 <= retry_after(value, now=NOW) <= NOW + 5 + 4


def test_a_server_that_is_down_is_a_502_with_a_retry_after():
    origin = origin_under(Together, capacity=10.0, down=True)
    answers = [origin.policy.answer(agent, 503, (), now=NOW) for agent in automated(100)]
    assert {status for _, status, _ in answers} == {502}
    seconds = [int(dict(headers)["Retry-After"]) for _, _, headers in answers]
    # A hundred agents return within ten seconds of a server that serves ten a second, and the jitter.
    assert 10 <= max(seconds) <= 13
    origin.down = False
    (agent,) = automated(1)
    assert origin.policy.answer(agent, 503, (), now=NOW) == (agent, 503, ())


def test_the_gate_serves_the_advice_while_the_server_is_down():
    origin = origin_under(Together, down=True)
    response = origin.policy.fetch_advice(1, now=NOW)
    assert parse_advice(response.body.decode(), ["AnyBot", "*"]).fraction == 1.0


def test_an_agent_obeys_a_retry_after():
    agent = an_agent(origin_under(Together))
    agent.received(429, (("Retry-After", "7"),), now=NOW)
    assert agent.release(now=NOW) == NOW + 7
    assert agent.release(now=NOW + 7) <= NOW + 7


def test_an_agent_waits_for_its_release_instead_of_an_attempt_that_is_refused():
    agent = an_agent(origin_under(Together))
    agent.received(502, (("Retry-After", "7"),), now=NOW)
    assert agent.pause(1, now=NOW) == 7.0
    assert agent.pause(1, now=NOW + 6) == 2.0  # not earlier than by itself
    agent.received(500, (), now=NOW + 10)
    assert agent.pause(1, now=NOW + 10) is None


def test_only_failures_of_the_server_back_an_agent_off():
    agent, other = an_agent(origin_under(Together)), an_agent(origin_under(Together))
    for _ in range(10):
        agent.received(502, (), now=NOW)
        other.received(503, (), now=NOW)
    assert agent.release(now=NOW) <= NOW
    assert other.release(now=NOW) > NOW


def test_an_automated_agent_obeys_the_advice():
    origin = origin_under(Together)
    origin.policy.fetch_advice = lambda agent, *, now: origin.policy.advice.fetch(agent, now=now)._replace(
        body=b'[{"user_agent": "*", "disallow": true}]'
    )
    assert an_agent(origin, number=3).release(now=NOW) <= NOW  # its first fetch is within a minute
    agent = an_agent(origin, number=4)
    agent.release(now=NOW)
    assert agent.release(now=NOW + 60) > NOW + 60
    person = an_agent(origin, number=5, is_automated=False)
    person.release(now=NOW)
    assert person.release(now=NOW + 60) <= NOW + 60
