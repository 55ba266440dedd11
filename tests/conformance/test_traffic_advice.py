"""What traffic-advice.txt says of proxies, proved by the prefetch proxy as a whole; other rules by unit tests."""

import json

import pytest

from headgate.advice.decision import DRAW_PERIOD, sticky_draw
from headgate.advice_control import Entry, document
from tests.conformance.advised_proxy import advice_response as origin_response
from tests.conformance.advised_proxy import run
from tests.quotes import quotes


@quotes(
    "traffic-advice 7",
    'If the result is "unreachable", then the HTTP server was not able to service the request for traffic'
    " advice. Since this could indicate that the server cannot accept additional requests at this time, "
    "agents may stop traffic to the server for some interval.",
)
@pytest.mark.parametrize(("unreachable", "becomes"), [("hold", (403, "advice_unreachable")), ("permit", "tunnel")])
def test_unreachable_is_held_or_permitted(unreachable, becomes):

    async def scenario(origin, proxy):
        origin.response = origin_response("", "Retry-After: 120", status="503 Service Unavailable")
        assert await proxy.connect() == becomes
        origin.response = origin_response("[]")
        proxy.now += 119
        assert await proxy.connect() == becomes
        assert len(origin.requests) == 1
        proxy.now += 1
        assert await proxy.connect() == "tunnel"

    run(scenario, unreachable=unreachable)


@quotes(
    "traffic-advice 7",
    "If the result's disallowed flag is true, then the HTTP server advises that traffic is discouraged at"
    " this time. Agents should respect this by not establishing new connections or sending new requests.",
)
def test_disallowed_opens_no_connection():

    async def scenario(origin, proxy):
        origin.response = origin_response('[{"user_agent":"prefetch-proxy","disallow":true}]')
        assert await proxy.clients_with_a_tunnel(50) == set()
        # That one was for the advice.
        assert (await origin.count_connections(), len(origin.requests)) == (1, 1)
        assert proxy.counts.connects == {"advice_disallowed": 50}

    run(scenario)


@quotes(
    "traffic-advice 7",
    "Agents may implement this as they see fit, but the following algorithm is suggested on establishment"
    " of an HTTP connection on behalf of a client. 1. Choose a uniform random number r between 0 and 1. "
    "2. If r is less than or equal to the result's fraction, then the traffic is permitted by the "
    "fraction. 3. Otherwise, a connection is not established.",
)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_steps_1_to_3(fraction):

    async def scenario(origin, proxy):
        origin.response = origin_response(f'[{{"user_agent":"*","fraction":{fraction}}}]')
        name = f"https://www.example.org:{origin.port}"
        refused = 0
        for last in range(60):
            drawn = sticky_draw(b"k" * 32, bytes([192, 0, 2, last]), name, now=proxy.now)
            goes = await proxy.connect(f"192.0.2.{last}") == "tunnel"
            assert goes is (drawn <= fraction)
            refused += not goes
        assert await origin.count_connections() == 1 + 60 - refused
        assert (refused == 0) is (fraction == 1)
        assert (refused == 60) is (fraction == 0)

    run(scenario)


@quotes(
    "traffic-advice 7",
    "This process should not be repeated as part of automatic retry logic, since this would defeat the "
    "server's ability to shed load in this manner.",
)
def test_a_second_request_has_the_same_draw():

    async def scenario(origin, proxy):
        origin.response = origin_response('[{"user_agent":"*","fraction":0.5}]')
        proxy.now = proxy.now // DRAW_PERIOD * DRAW_PERIOD
        first = await proxy.clients_with_a_tunnel(40)
        assert 0 < len(first) < 40
        for _ in range(5):
            proxy.now += 100
            assert await proxy.clients_with_a_tunnel(40) == first
        assert len(origin.requests) == 1
        proxy.now += 100  # ten minutes are over: no client is refused for ever
        assert await proxy.clients_with_a_tunnel(40) != first

    run(scenario)


@quotes(
    "traffic-advice 7",
    "Agents should avoid approaches which might bias the permitted connections or requests in ways that "
    "might make this scaling non-linear (e.g., by preferring certain kinds of connection or user).",
)
def test_no_client_is_preferred():

    async def scenario(origin, proxy):
        origin.response = origin_response('[{"user_agent":"*","fraction":0.5}]')
        here = await proxy.clients_with_a_tunnel(200)
        there = await proxy.clients_with_a_tunnel(200, host="other.example.org")
        # Each half of the clients, by one origin, is halved by another: six standard deviations.
        assert abs(len(here & there) - 50) < 37
        assert abs(len(here - there) - 50) < 37

    run(scenario)


@quotes(
    "traffic-advice 8.3",
    "Agents which are proxy services accessible to untrusted users (esp. the general public) may be "
    "susceptible to being used to amplify a denial of service attack conducted, for example, by a botnet."
    " For example, if a small request from a client (e.g. CONNECT target.example:443 with small headers) "
    "can cause a larger request (e.g., GET /.well-known/traffic-advice with large headers) to the origin "
    "server, this could be used to increase the effective bandwidth available to the distributed denial "
    "of service attack against an origin server.",
)
def test_a_small_request_causes_no_larger_one():

    async def scenario(origin, proxy):
        tag = "a" * 900
        origin.response = origin_response("[]", f'ETag: "{tag}"', "Last-Modified: Tue, 14 Nov 2023 22:13:20 GMT")
        fields = [("proxy-authorization", "Basic " + "x" * 8_000), ("user-agent", "x" * 8_000)]
        for number in range(100):
            assert await proxy.connect(f"192.0.2.{number}", fields=fields) == "tunnel"
        proxy.now += 1_800
        assert await proxy.connect(fields=fields) == "tunnel"
        assert b"If-Modified-Since" in origin.requests[1]
        assert max(map(len, origin.requests)) < 300
        # Two requests, what TLS adds to them included, for 101 CONNECTs.
        assert len(origin.requests) == 2
        assert proxy.counts.advice_request_bytes < proxy.counts.connect_request_bytes

    run(scenario)


@quotes(
    "traffic-advice 8.1",
    "If interpreted as JavaScript, the JSON data would either be syntactically invalid or an empty block.",
)
def test_a_published_document_has_no_effect_as_a_script():
    names = ["</script>", "${alert(1)}", "*/alert(1)/*", "a\u2028b", '"+alert(1)+"', "__proto__"]
    written = document([*(Entry(name, disallow=True) for name in names), Entry("*", fraction=0.5)])
    # A literal: a list of maps of texts, booleans and numbers. JSON is part of the language of scripts.
    assert written.startswith(b"[{")
    items = json.loads(written)
    assert [item["user_agent"] for item in items] == [*names, "*"]
    assert {type(value) for item in items for value in item.values()} == {str, bool, float}
    assert {name for item in items for name in item} == {"user_agent", "disallow", "fraction"}
