"""Laws of counting arrivals and of the advice loop, for any requests, fetches and times."""

import json
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from headgate.config.advice_section import AdviceSection
from headgate.http.h1 import RequestLimits, parse_request_head
from headgate.origin.gateway.advice_resource import AdviceFetch
from headgate.origin.gateway.arrivals import ArrivalClasses, ArrivalMeter, KnownAgent
from headgate.origin.gateway.fetch_bound import FetchBound
from headgate.runtime.gate.advice.loop import AdviceLoop
from headgate.runtime.gate.advice.messages import AdviceReport, OriginReport

NOW = 1_700_000_000.0
ADDRESS = st.sampled_from([b"192.0.2.1", b"192.0.2.2", b"192.0.2.3"])
BRAND = st.sampled_from([b"Bot", b"OtherBot", b"Mozilla/5.0 (Bot)", b""])
AGENT = st.builds(KnownAgent, ADDRESS, BRAND)
CLASS = st.sampled_from(["prefetch-proxy", "*", "Bot", "none"])
TIME = st.floats(-2_000.0, 2_000.0)


@given(
    st.lists(AGENT, max_size=5),
    st.lists(st.tuples(ADDRESS, BRAND, st.booleans(), st.sampled_from([None, "api", "site"])), max_size=30),
    st.sets(CLASS),
)
def test_each_request_is_counted_once(known, requests, names):
    meter = ArrivalMeter(ArrivalClasses(tuple(names), MappingProxyType({"api": "*"})), seconds=600.0)
    meter.learn(known, now=NOW)
    for number, (address, user_agent, prefetch, domain) in enumerate(requests):
        more = b"Sec-Purpose: prefetch;anonymous-client-ip\r\n" if prefetch else b""
        head = b"GET /%d HTTP/1.1\r\nHost: a\r\nUser-Agent: %b/1\r\n%b\r\n" % (number, user_agent, more)
        parsed = parse_request_head(head, RequestLimits())
        assert parsed is not None
        meter.count(parsed, domain, address)
    counted = meter.take()
    assert counted.people + sum(counted.agents.values()) == len(requests)
    assert {name for name, _ in counted.agents} <= names | {"*"}
    assert meter.take() == ({}, 0)


@given(
    st.lists(
        st.tuples(
            TIME,
            st.lists(st.builds(AdviceFetch, ADDRESS, BRAND, st.integers(-1, 9)), max_size=3),
            st.lists(
                st.tuples(CLASS, AGENT.map(lambda agent: agent.key) | st.just(b""), st.integers(0, 10**6)), max_size=3
            ),
            st.integers(0, 10**6),
            st.floats(0.0, 1e6),
        ),
        max_size=20,
    ),
    st.sampled_from(["100/s", "learned"]),
)
def test_what_is_published_is_valid_whatever_workers_report(steps, capacity):
    section = AdviceSection(mode="adaptive", capacity=capacity)
    loop, now = AdviceLoop(section, now=NOW, log=lambda _message: None), NOW
    for step, fetches, arrivals, people, learned in steps:
        now += step
        serial = loop.publication.serial
        loop.take(AdviceReport(fetches, arrivals, people, OriginReport(people, people // 3, learned)), now=now)
        loop.tick(now=now)
        publication = loop.publication
        assert publication.serial >= serial
        for entry in json.loads(publication.document):
            assert entry.get("disallow", True) is True
            assert 0.0 < entry.get("fraction", 1.0) <= 1.0
        saved = loop.saved(now=now)
        again = AdviceLoop(section, saved=saved, now=now, log=lambda _message: None)
        assert json.loads(again.publication.document) == json.loads(publication.document)


@given(st.lists(st.tuples(ADDRESS, st.floats(0.0, 2_000.0)), max_size=200))
def test_a_refused_fetch_is_told_a_time_that_is_bounded(fetches):
    bound, now = FetchBound(600.0, lambda: 0.999), NOW
    for address, step in fetches:
        now += step
        refusal = bound.refusal(address, now=now)
        assert refusal is None or (refusal.status in {429, 503} and 1 <= refusal.retry_after <= 120)
