from types import MappingProxyType

import pytest

from headgate.http.h1 import RequestHead, RequestLimits, parse_request_head
from headgate.origin.gateway import arrivals
from headgate.origin.gateway.arrivals import (
    MAX_BRANDS,
    ArrivalClasses,
    ArrivalMeter,
    KnownAgent,
    KnownAgents,
    brand_of,
)

NOW = 1_700_000_000.0
HERE, THERE = b"192.0.2.1", b"192.0.2.2"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36"
PREFETCH = "Sec-Purpose: prefetch;anonymous-client-ip"


def request(user_agent: str = CHROME, *fields: str) -> RequestHead:
    lines = "".join(f"{field}\r\n" for field in ("Host: a", f"User-Agent: {user_agent}", *fields))
    head = parse_request_head(f"GET / HTTP/1.1\r\n{lines}\r\n".encode(), RequestLimits())
    assert head is not None
    return head


def meter(*names: str, agents: tuple[KnownAgent, ...] = (), **domains: str) -> ArrivalMeter:
    made = ArrivalMeter(ArrivalClasses(names, MappingProxyType(domains)), seconds=1_200.0)
    made.learn(agents, now=NOW)
    return made


BOT = KnownAgent(HERE, b"ExampleBot")
PROXY = KnownAgent(HERE, b"ExampleProxy")


@pytest.mark.parametrize(
    ("names", "agent", "sent", "counted"),
    [
        # Nothing tells that these are agents.
        (("*",), BOT, (THERE, request()), None),
        (("*",), BOT, (THERE, request("ExampleBot/1.0")), None),
        (("*",), BOT, (HERE, request()), None),
        # An agent at an address that has fetched, by its brand or as the only program that is not a browser.
        (("*",), BOT, (HERE, request("ExampleBot/1.0")), ("*", BOT.key)),
        (("*",), BOT, (HERE, request("Mozilla/5.0 (compatible; ExampleBot/1.0)")), ("*", BOT.key)),
        (("*",), BOT, (HERE, request("python-httpx/0.28.1")), ("*", BOT.key)),
        (("*",), KnownAgent(HERE, b""), (HERE, request("python-httpx/0.28.1")), ("*", KnownAgent(HERE, b"").key)),
        (("prefetch-proxy",), BOT, (HERE, request("ExampleBot/1.0")), None),
        # A fetch without a brand, or with a part of a word, does not stand for all browsers at its address.
        (("*",), KnownAgent(HERE, b""), (HERE, request()), None),
        (("*",), KnownAgent(HERE, b"e"), (HERE, request()), None),
        # The operator lists a brand: every address.
        (("ExampleBot", "*"), BOT, (HERE, request("ExampleBot/1.0")), ("ExampleBot", BOT.key)),
        (("ExampleBot", "*"), BOT, (THERE, request("Mozilla/5.0 (a; ExampleBot/1)")), ("ExampleBot", b"")),
        (("ExampleBot", "*"), BOT, (THERE, request("NotExampleBot/1")), None),
        (("ExampleBot", "*"), BOT, (THERE, request("ExampleBots/1")), None),
        # Prefetch proxies.
        (("prefetch-proxy", "*"), PROXY, (THERE, request(CHROME, PREFETCH)), ("prefetch-proxy", b"")),
        (("prefetch-proxy", "*"), PROXY, (HERE, request(CHROME, PREFETCH)), ("prefetch-proxy", PROXY.key)),
        (("*",), PROXY, (HERE, request(CHROME, PREFETCH)), ("*", PROXY.key)),
        (("ExampleProxy", "*"), PROXY, (HERE, request(CHROME, PREFETCH)), ("ExampleProxy", PROXY.key)),
        # A browser that prefetches by itself, and text of another field.
        (("prefetch-proxy", "*"), PROXY, (THERE, request(CHROME, "Sec-Purpose: prefetch")), None),
        (("prefetch-proxy", "*"), PROXY, (THERE, request(CHROME, "X: anonymous-client-ip")), None),
    ],
)
def test_a_request_belongs_to_its_class(names, agent, sent, counted):
    counting = meter(*names, agents=(agent,))
    counting.count(sent[1], None, sent[0])
    expected = ({counted: 1}, 0) if counted else ({}, 1)
    assert counting.take() == expected
    assert counting.take() == ({}, 0)


def test_the_domain_decides_before_all_else():
    counting = meter("prefetch-proxy", "*", agents=(BOT,), crawl="*")
    counting.count(request(CHROME, PREFETCH), "crawl", HERE)
    counting.count(request(), "crawl", THERE)
    counting.count(request(), "other", THERE)
    assert counting.take() == ({("*", BOT.key): 1, ("*", b""): 1}, 1)


def test_agents_beyond_the_bound_are_counted_together(monkeypatch):
    monkeypatch.setattr(arrivals, "MAX_COUNTED", 2)
    agents = tuple(KnownAgent(b"192.0.2.%d" % number, b"Bot") for number in range(5))
    counting = meter("*", agents=agents)
    for agent in agents:
        counting.count(request("Bot/1"), None, agent.address)
    assert counting.take().agents == {("*", agents[0].key): 1, ("*", agents[1].key): 1, ("*", b""): 3}


def test_an_agent_is_forgotten_when_it_has_not_fetched_for_long():
    known = KnownAgents(10.0)
    known.add(BOT, now=NOW)
    known.add(KnownAgent(THERE, b"Bot"), now=NOW + 1)
    known.add(BOT, now=NOW + 2)
    known.forget(now=NOW + 11)
    assert known.all() == [BOT]
    known.forget(now=NOW + 12)
    assert known.all() == []


def test_the_table_of_agents_is_bounded(monkeypatch):
    monkeypatch.setattr(arrivals, "MAX_AGENTS", 3)
    known = KnownAgents(10.0)
    for number in range(5):
        known.add(KnownAgent(b"%d" % number, b"Bot"), now=NOW)
    for number in range(MAX_BRANDS + 3):
        known.add(KnownAgent(b"4", b"Bot %d" % number), now=NOW)
    assert len(known) == 3
    assert len(known.brands(b"4")) == MAX_BRANDS
    assert known.brands(b"4")[0] == b"Bot 6"


@pytest.mark.parametrize(
    ("user_agent", "brand"),
    [
        (b"ExampleBot", b"ExampleBot"),
        (b"ExampleBot/1.0 (+https://example.org)", b"ExampleBot"),
        (b"Chrome Privacy Preserving Prefetch Proxy", b"Chrome Privacy Preserving Prefetch Proxy"),
        (b"Mozilla/5.0 (compatible; Bot)", b"Mozilla/5.0 (compatible; Bot)"),
        (b"/x", b"/x"),
        (b"", b""),
    ],
)
def test_the_brand_is_what_an_agent_fetches_with(user_agent, brand):
    assert brand_of(user_agent) == brand


@pytest.mark.parametrize("name", ["User-Agent:", "user-agent:", "USER-AGENT: \t"])
def test_the_name_of_the_field_may_be_written_in_any_way(name):
    counting = meter("*", agents=(BOT,))
    head = f"GET / HTTP/1.1\r\nHost: a\r\n{name}ExampleBot/1\r\n\r\n".encode()
    parsed = parse_request_head(head, RequestLimits())
    assert parsed is not None
    counting.count(parsed, None, HERE)
    assert counting.take().agents == {("*", BOT.key): 1}


def test_a_request_is_classified_anew_when_an_agent_has_fetched():
    counting = meter("*", "ExampleProxy")
    sent = request("Mozilla/5.0 (compatible; ExampleBot/1)", PREFETCH)
    counting.count(sent, None, HERE)
    counting.learn([PROXY], now=NOW)
    counting.count(sent, None, HERE)
    assert counting.take().agents == {("*", b""): 1, ("ExampleProxy", PROXY.key): 1}


def test_what_is_known_of_requests_is_bounded(monkeypatch):
    monkeypatch.setattr(arrivals, "MAX_COUNTED", 3)
    counting = meter("*", agents=(BOT,))
    for number in range(10):
        counting.count(request(f"ExampleBot/{number}"), None, HERE)
    assert len(counting._known) <= 3
    assert counting.take().agents == {("*", BOT.key): 10}
