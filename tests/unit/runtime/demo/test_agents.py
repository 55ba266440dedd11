import asyncio
import json

import pytest

from headgate.runtime.demo.agents import PAGES_PER_TUNNEL, PoliteAgent, PrefetchClient, Visitor, requests_per_visit
from headgate.runtime.demo.measure import Tally, Visit
from headgate.runtime.demo.plan import KINDS
from tests.unit.runtime.demo.serving import REFUSAL, asynchronous

ADVICE = "/.well-known/traffic-advice"


def advice(**entry):
    body = json.dumps([{"user_agent": "*", **entry}]).encode()
    fields = b"Content-Type: application/trafficadvice+json\r\nCache-Control: max-age=1\r\n"
    return b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (fields, len(body), body)


def draw():
    return 0.5


async def visits(agent, count=1):
    tally = Tally()
    for _ in range(count):
        await agent.visit(Visit(tally, 10), draw)
    agent.close()
    return tally


@pytest.mark.parametrize("kind", KINDS)
def test_a_visit_has_this_many_requests(kind):
    assert requests_per_visit(kind) == (PAGES_PER_TUNNEL if kind == "prefetch" else 1)


@asynchronous
async def test_a_crawler_obeys_nothing(server):
    server.answer = REFUSAL
    tally = await visits(Visitor(server.place(), "crawlers", 0), 3)
    assert (tally.sent, tally.served) == (3, 0)
    assert server.paths == ["/news/10"] * 3
    assert "User-Agent: GreedyBot/1.0\r\n" in server.heads[0]


@asynchronous
async def test_a_person_gives_up_at_the_deadline(server):
    server.answer = None
    tally = await visits(Visitor(server.place(deadline=0.05), "people", 0))
    assert (tally.sent, tally.served) == (1, 0)


@asynchronous
async def test_a_polite_agent_obeys_retry_after(server):
    server.answers[ADVICE] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    server.answer = REFUSAL
    tally = await visits(PoliteAgent(server.place(), 0, min_freshness=1.0), 3)
    assert (tally.sent, tally.served) == (1, 0)
    assert server.paths == [ADVICE, "/news/10"]


@asynchronous
async def test_a_polite_agent_obeys_advice(server):
    server.answers[ADVICE] = advice(disallow=True)
    tally = await visits(PoliteAgent(server.place(), 0, min_freshness=1.0), 3)
    assert (tally.sent, tally.served) == (0, 0)
    assert server.paths == [ADVICE]
    server.answers[ADVICE] = advice(fraction=1.0)
    tally = await visits(PoliteAgent(server.place(), 0, min_freshness=1.0), 3)
    assert (tally.sent, tally.served) == (3, 3)


@asynchronous
async def test_a_polite_agent_fetches_advice_again_after_its_max_age(server):
    agent = PoliteAgent(server.place(), 0, min_freshness=0.2)
    server.answers[ADVICE] = advice(disallow=True).replace(b"max-age=1", b"max-age=0")
    tally = Tally()
    await agent.visit(Visit(tally, 1), draw)
    server.answers[ADVICE] = advice(fraction=1.0).replace(b"max-age=1", b"max-age=0")
    while not tally.served:
        await agent.visit(Visit(tally, 1), draw)
        await asyncio.sleep(0.01)
    agent.close()
    assert server.paths.count(ADVICE) >= 2


@asynchronous
async def test_a_refused_prefetch_sends_nothing(server):
    server.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    tally = await visits(PrefetchClient(server.place(), 0), 2)
    assert (tally.sent, tally.served) == (0, 0)
    assert server.connections == 2
