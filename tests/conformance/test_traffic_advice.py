"""What traffic-advice.txt says of proxies, proved by the prefetch proxy as a whole; other rules by unit tests."""

import json

from headgate.advice_control import Entry, document
from tests.conformance.advised_proxy import advice_response as origin_response
from tests.conformance.advised_proxy import run
from tests.quotes import quotes


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
