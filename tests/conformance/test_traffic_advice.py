"""traffic-advice.txt, clause by clause: each docstring quotes the sentences its test proves."""

import random

import pytest

from headgate.advice import MEDIA_TYPE, PATH, AdviceCache, AgentIdentity, Entry, document, parse_advice, permits
from headgate.advice.answer import Advice, Fetch, Wait
from headgate.advice.draw import epoch, sticky_draw
from headgate.advice.fetching import (
    NETWORK_ERROR,
    AdviceResponse,
    advice_request,
    interpret,
    needs_body,
    traffic_advice_url,
)
from headgate.advice.freshness import DEFAULT, LEAST, MOST, fresh_for
from headgate.advice.parsing import parse_advice_bytes
from headgate.advice.result import UNREACHABLE, AdviceEntry
from headgate.errors import ConfigurationError
from headgate.release import ASAP

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
ORIGIN = "https://example.com"
NOW = 1_700_000_000.0
HALF = b'[{"user_agent":"*","fraction":0.5}]'
TYPED = [("Content-Type", "application/trafficadvice+json")]


def response(status=200, fields=(), body=HALF):
    return AdviceResponse(status, [*TYPED, *fields], body)


def advised(answer, *, now=NOW, cache=None):
    """Fetch into a cache; give what it then knows."""
    cache = AdviceCache(IDENTITY) if cache is None else cache
    fetch = cache.ask(ORIGIN, now=now)
    return cache.received(fetch, answer, now=now)


class TestDefinitions:
    def test_a_result_is_one_of_three(self):
        """A traffic advice result is null, a traffic advice entry, or "unreachable"."""
        results = [interpret(answer, IDENTITY) for answer in (response(404), response(), response(503))]
        assert results == [None, AdviceEntry(disallowed=False, fraction=0.5), UNREACHABLE]

    def test_an_identity(self):
        """An agent identity is a list of strings. It must contain at least two elements, and the last must be "*"."""
        assert list(AgentIdentity(["PollyPrefetchProxy", "*"])) == ["PollyPrefetchProxy", "*"]
        for names in (["*"], ["PollyPrefetchProxy"], ["*", "PollyPrefetchProxy"], [1, "*"]):
            with pytest.raises(ConfigurationError):
                AgentIdentity(names)


class TestIdentity:
    def test_all_that_apply_in_order(self):
        """Its agent identity is all of the following that apply, in order: 1. The brand name 2. "prefetch-proxy", if
        the agent is a proxy server which exclusively serves prefetch traffic (for example, a private prefetch proxy)
        3. "*" """
        proxy = AgentIdentity.of("PollyPrefetchProxy", prefetch_proxy=True)
        assert proxy == ("PollyPrefetchProxy", "prefetch-proxy", "*")
        assert AgentIdentity.of("PollyBot") == ("PollyBot", "*")

    def test_a_brand_name_is_said(self):
        """Each agent should have an brand name that specifically identifies it (such as PollyPrefetchProxy)."""
        request = advice_request(ORIGIN, AgentIdentity.of("PollyPrefetchProxy"))
        assert ("User-Agent", "PollyPrefetchProxy") in request.fields


class TestUrl:
    @pytest.mark.parametrize("origin", ["null", "data:text/plain,a", "file:///", "about:blank"])
    def test_step_1(self, origin):
        """If origin is not a tuple origin, return failure."""
        assert traffic_advice_url(origin) is None

    @pytest.mark.parametrize("origin", ["wss://example.com", "ws://localhost", "ftp://localhost"])
    def test_step_2(self, origin):
        """If origin's scheme is not an HTTP(S) scheme, return failure."""
        assert traffic_advice_url(origin) is None

    @pytest.mark.parametrize("origin", ["http://example.com", "http://192.0.2.1", "http://[::2]"])
    def test_step_3(self, origin):
        """If origin is not a potentially trustworthy origin, return failure."""
        assert traffic_advice_url(origin) is None
        assert traffic_advice_url(origin.replace("http:", "https:")) is not None

    @pytest.mark.parametrize("origin", ["https://example.com", "https://example.com:8443", "http://127.0.0.1:8000"])
    def test_step_4(self, origin):
        """Return a new URL as follows: scheme origin's scheme host origin's host port origin's port path
        « ".well-known", "traffic-advice" »"""
        assert traffic_advice_url(origin) == f"{origin}/.well-known/traffic-advice"


class TestFetching:
    def test_step_1(self):
        """Let url be the result of generating a traffic advice URL for origin. If it results in failure, then return
        failure."""
        assert advice_request("http://example.com", IDENTITY) is None
        answer = AdviceCache(IDENTITY).ask("http://example.com", now=NOW)
        assert isinstance(answer, Advice)
        assert answer.result is None

    def test_step_2_method_and_url(self):
        """method `GET` URL url"""
        fetch = AdviceCache(IDENTITY).ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        assert fetch.request.url == "https://example.com/.well-known/traffic-advice"

    def test_step_2_credentials(self):
        """client null credentials mode "omit" """
        request = advice_request("https://user:password@example.com/a?b", IDENTITY)
        assert {name for name, _ in request.fields} == {"Accept", "Accept-Encoding", "User-Agent"}
        assert "user" not in request.url

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_step_2_redirects(self, status):
        """redirect mode "manual" This means that a redirect status will not lead to another origin being contacted."""
        moved = response(status, [("Location", "https://other.example/")])
        assert not needs_body(status, moved.fields)
        assert interpret(moved, IDENTITY) is None

    def test_step_4_1(self):
        """If response's type is "error", then terminate fetchController, run whenComplete with "unreachable", and
        return."""
        assert not needs_body(NETWORK_ERROR.status, NETWORK_ERROR.fields)
        assert interpret(NETWORK_ERROR, IDENTITY) is UNREACHABLE

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_step_4_2(self, status):
        """If response's type is "opaqueredirect", then terminate fetchController, run whenComplete with null, and
        return."""
        assert interpret(response(status), IDENTITY) is None

    @pytest.mark.parametrize("status", [429, 503])
    def test_step_4_4(self, status):
        """If response's status is 429 (Too Many Requests; see [RFC6585]) or 503 (Service Unavailable; see
        [HTTP-SEMANTICS]), then terminate fetchController, run whenComplete with "unreachable", and return."""
        assert not needs_body(status, TYPED)
        assert interpret(response(status), IDENTITY) is UNREACHABLE

    def test_step_4_4_hint(self):
        """If present, the [HTTP-SEMANTICS] Retry-After response header could be used as a hint about when to next
        retry."""
        advice = advised(response(503, [("Retry-After", "7")]))
        assert advice.fresh_until == advice.release_time(0.0) == NOW + 7

    @pytest.mark.parametrize("status", [400, 403, 404, 410, 500, 502, 504])
    def test_step_4_5(self, status):
        """If response's status is not an ok status, then terminate fetchController, run whenComplete with null and
        return."""
        assert not needs_body(status, TYPED)
        assert interpret(response(status), IDENTITY) is None

    @pytest.mark.parametrize("status", [204, 205])
    def test_step_4_6(self, status):
        """If response's status is a null body status, then terminate fetchController, run whenComplete with null and
        return."""
        assert not needs_body(status, TYPED)
        assert interpret(response(status), IDENTITY) is None

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            (["text/html", "application/trafficadvice+json;charset=x"], AdviceEntry(fraction=0.5)),
            (["application/trafficadvice+json, text/html"], None),
        ],
    )
    def test_step_4_7(self, lines, expected):
        """Let mimeType be the result of extracting a MIME type from response's header list."""
        fields = [("Content-Type", line) for line in lines]
        assert interpret(AdviceResponse(200, fields, HALF), IDENTITY) == expected

    @pytest.mark.parametrize("fields", [[], [("Content-Type", "nonsense")], [("Content-Type", "application/json")]])
    def test_step_4_8(self, fields):
        """If mimeType is failure or its essence is not "application/trafficadvice+json", then terminate
        fetchController, run whenComplete with null and return."""
        assert not needs_body(200, fields)
        assert interpret(AdviceResponse(200, fields, HALF), IDENTITY) is None

    def test_end_of_body_step_1(self):
        """If body is not a byte sequence, then run whenComplete with null and return."""
        assert interpret(response(body=None), IDENTITY) is None

    def test_end_of_body_step_2(self):
        """Let string be the result of UTF-8 decoding body."""
        body = b'\xef\xbb\xbf[{"user_agent":"\xff","disallow":true},{"user_agent":"*","fraction":0.5}]'
        assert interpret(response(body=body), IDENTITY) == AdviceEntry(fraction=0.5)

    def test_end_of_body_step_3(self):
        """Let parseResult be the result of parsing traffic advice from string given identity."""
        assert interpret(response(), IDENTITY) == parse_advice(HALF.decode(), IDENTITY)
        assert interpret(response(), IDENTITY) == parse_advice_bytes(HALF, IDENTITY) == AdviceEntry(fraction=0.5)

    def test_step_6_minimum_and_maximum(self):
        """agents (especially ones shared amongst multiple users) should consider applying a minimum freshness lifetime
        (10 minutes is suggested) and maximum freshness lifetime (48 hours is suggested)"""
        for directive, seconds in (("max-age=1", 600), ("max-age=3600", 3600), ("max-age=999999", 172_800)):
            assert advised(response(fields=[("Cache-Control", directive)])).fresh_until == NOW + seconds
        assert (LEAST, MOST) == (10 * 60, 48 * 60 * 60)

    def test_step_6_default(self):
        """If these suggested values are used, a default freshness lifetime (if none is specified) of 30 minutes may be
        appropriate."""
        assert advised(response()).fresh_until == NOW + 30 * 60
        assert fresh_for(response(404), None, now=NOW) == DEFAULT == 30 * 60


class TestParsing:
    @staticmethod
    def read(text, identity=IDENTITY):
        return parse_advice(text, identity)

    @pytest.mark.parametrize("text", ["", "[", '[{"user_agent":"*"},]', '[{"user_agent":"*","fraction":NaN}]'])
    def test_step_1(self, text):
        """Let parsed be the result of parsing JSON into Infra values given string. If this throws an exception, then
        return null."""
        assert self.read(text) is None

    @pytest.mark.parametrize("text", ['{"user_agent":"*"}', "null", '"*"', "1", "true"])
    def test_step_2(self, text):
        """If parsed is not a list, then return null."""
        assert self.read(text) is None

    def test_step_4_1(self):
        """If entry is not a map, then continue."""
        assert self.read('[null,1,"*",["*"],{"user_agent":"*"}]') == AdviceEntry()

    @pytest.mark.parametrize("entry", ["{}", '{"user_agent":null}', '{"user_agent":1}', '{"user_agent":["*"]}'])
    def test_step_4_2(self, entry):
        """If entry["user_agent"] does not exist or is not a string, then continue."""
        assert self.read(f"[{entry}]") is None

    @pytest.mark.parametrize("selector", ["OtherProxy", "exampleproxy", "Prefetch-Proxy", "* ", ""])
    def test_step_4_4(self, selector):
        """If identity does not contain agentSelector, then continue."""
        assert self.read(f'[{{"user_agent":"{selector}"}}]') is None

    @pytest.mark.parametrize(
        ("selectors", "chosen"),
        [
            (["*", "prefetch-proxy"], 1),
            (["prefetch-proxy", "*"], 0),
            (["*", "prefetch-proxy", "ExampleProxy", "*"], 2),
            (["*", "*"], 0),
            (["prefetch-proxy", "*", "prefetch-proxy"], 0),
        ],
    )
    def test_step_4_5(self, selectors, chosen):
        """If bestMatch is null or agentSelector appears at an earlier index in identity than bestMatch["user_agent"]
        does, then set bestMatch to entry."""
        entries = [f'{{"user_agent":"{name}","fraction":{number / 10}}}' for number, name in enumerate(selectors)]
        assert self.read(f"[{','.join(entries)}]") == AdviceEntry(fraction=chosen / 10)

    def test_step_5(self):
        """If bestMatch is null, then return null."""
        assert self.read("[]") is None
        assert self.read('[{"user_agent":"OtherProxy","disallow":true}]') is None

    @pytest.mark.parametrize(
        ("value", "disallowed"), [("true", True), ("false", False), ('"true"', False), ("1", False)]
    )
    def test_step_7(self, value, disallowed):
        """If bestMatch["disallow"] exists and is true, then set entry's disallowed flag to true."""
        assert self.read(f'[{{"user_agent":"*","disallow":{value}}}]') == AdviceEntry(disallowed=disallowed)

    @pytest.mark.parametrize("value", ['"0.5"', "true", "null", "[0.5]"])
    def test_step_8(self, value):
        """If bestMatch["fraction"] exists and is a number"""
        assert self.read(f'[{{"user_agent":"*","fraction":{value}}}]') == AdviceEntry(fraction=1.0)
        assert self.read('[{"user_agent":"*","fraction":0.5}]') == AdviceEntry(fraction=0.5)

    @pytest.mark.parametrize(
        ("value", "fraction"), [("0", 0.0), ("-0", 0.0), ("0.5", 0.5), ("1", 1.0), ("1.1", 1.0), ("-0.1", 1.0)]
    )
    def test_step_8_2(self, value, fraction):
        """If fraction is greater than or equal to 0 and less than or equal to 1, then set entry's fraction to
        fraction."""
        assert self.read(f'[{{"user_agent":"*","fraction":{value}}}]') == AdviceEntry(fraction=fraction)

    def test_step_9(self):
        """Return entry."""
        assert self.read('[{"user_agent":"*","disallow":true,"fraction":0.5}]') == AdviceEntry(True, 0.5)


class TestInterpretation:
    def test_advice_is_fetched_and_cached(self):
        """When they would be able to respect advice to disallow traffic to an origin [...], traffic advice respecting
        agents should fetch traffic advice (respecting [HTTP-CACHING] semantics)."""
        cache = AdviceCache(IDENTITY)
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        assert isinstance(cache.ask(ORIGIN, now=NOW), Wait)
        cache.received(fetch, response(fields=[("Cache-Control", "max-age=3600"), ("ETag", '"a"')]), now=NOW)
        assert cache.ask(ORIGIN, now=NOW + 3599).result == AdviceEntry(fraction=0.5)
        again = cache.ask(ORIGIN, now=NOW + 3600)
        assert ("If-None-Match", '"a"') in again.request.fields
        renewed = cache.received(again, AdviceResponse(304, [], None), now=NOW + 3600)
        assert (renewed.result, renewed.fresh_until) == (AdviceEntry(fraction=0.5), NOW + 7200)

    def test_null_is_no_advice(self):
        """If the result is null, then no advice was received. Agents should adopt their default behavior."""
        assert advised(response(404)).release_time(1.0) == ASAP

    def test_unreachable_may_be_left_alone(self):
        """Since this could indicate that the server cannot accept additional requests at this time, agents may stop
        traffic to the server for some interval."""
        advice = advised(response(503, [("Retry-After", "120")]))
        assert advice.result is UNREACHABLE
        assert advice.release_time(0.0) == NOW + 120

    def test_disallowed_is_respected(self):
        """If the result's disallowed flag is true, then the HTTP server advises that traffic is discouraged at this
        time. Agents should respect this by not establishing new connections or sending new requests."""
        advice = advised(response(body=b'[{"user_agent":"*","disallow":true}]'))
        assert not permits(advice.result, 0.0)
        assert advice.release_time(0.0) == advice.fresh_until > NOW

    @pytest.mark.parametrize(("draw", "permitted"), [(0.0, True), (0.1, True), (0.1000001, False), (1.0, False)])
    def test_steps_1_to_3(self, draw, permitted):
        """1. Choose a uniform random number r between 0 and 1. 2. If r is less than or equal to the result's fraction,
        then the traffic is permitted by the fraction. 3. Otherwise, a connection is not established."""
        assert permits(AdviceEntry(fraction=0.1), draw) is permitted

    def test_it_is_not_repeated(self):
        """This process should not be repeated as part of automatic retry logic, since this would defeat the server's
        ability to shed load in this manner."""
        entry = AdviceEntry(fraction=0.5)
        draws = {sticky_draw(b"k" * 32, b"192.0.2.1", ORIGIN, epoch(entry)) for _ in range(100)}
        assert len(draws) == 1

    @pytest.mark.parametrize("fraction", [0.1, 0.2, 0.4, 0.8])
    def test_a_fraction_is_a_fraction_of_the_traffic(self, fraction):
        """Broadly, agents should aim for a fraction of 0.1 to result in approximately 10% of the traffic to the HTTP
        server."""
        entry, chance = AdviceEntry(fraction=fraction), random.Random(1)
        permitted = sum(permits(entry, chance.random()) for _ in range(50_000))
        assert abs(permitted / 50_000 - fraction) < 0.01

    def test_nobody_is_preferred(self):
        """Agents should avoid approaches which might bias the permitted connections or requests in ways that might make
        this scaling non-linear (e.g., by preferring certain kinds of connection or user)."""
        clients = [b"192.0.2.%d" % number for number in range(200)]
        permitted = dict.fromkeys(clients, 0)
        for number in range(200):
            entry = AdviceEntry(fraction=0.5)
            for client in clients:
                draw = sticky_draw(b"k" * 32, client, f"https://{number}.example", epoch(entry))
                permitted[client] += permits(entry, draw)
        # 200 fair coins each: six standard deviations.
        assert all(abs(count - 100) < 43 for count in permitted.values())


class TestSecurity:
    def test_a_media_type_used_for_nothing_else(self):
        """this specification requires the use of a MIME type that is not used for any other purpose"""
        assert interpret(AdviceResponse(200, [("Content-Type", "application/json")], HALF), IDENTITY) is None

    @pytest.mark.parametrize(
        "field", [("Cache-Control", "max-age=63072000"), ("Expires", "Fri, 31 Dec 9999 23:59:59 GMT")]
    )
    def test_a_policy_does_not_last(self, field):
        """To mitigate this, well-behaved agents implement a maximum freshness lifetime when they fetch traffic
        advice."""
        cache = AdviceCache(IDENTITY)
        advised(response(fields=[field], body=b'[{"user_agent":"*","disallow":true}]'), cache=cache)
        assert isinstance(cache.ask(ORIGIN, now=NOW + 48 * 3600 - 1), Advice)
        assert isinstance(cache.ask(ORIGIN, now=NOW + 48 * 3600), Fetch)

    @pytest.mark.parametrize("field", [("Cache-Control", "no-store"), ("Cache-Control", "max-age=0"), ("Expires", "0")])
    def test_an_origin_is_not_asked_again_and_again(self, field):
        """To mitigate this, well-behaved agents implement, in addition to other anti-abuse measures, a minimum
        freshness lifetime when they fetch traffic advice."""
        cache = AdviceCache(IDENTITY)
        advised(response(fields=[field]), cache=cache)
        answers = [cache.ask(ORIGIN, now=NOW + second) for second in range(600)]
        assert all(isinstance(answer, Advice) for answer in answers)

    def test_a_small_request_causes_a_small_request(self):
        """if a small request from a client (e.g. CONNECT target.example:443 with small headers) can cause a larger
        request (e.g., GET /.well-known/traffic-advice with large headers) to the origin server"""
        cache = AdviceCache(IDENTITY)
        advised(response(fields=[("ETag", f'"{"a" * 100_000}"'), ("Last-Modified", "x" * 100_000)]), cache=cache)
        fetch = cache.ask(ORIGIN, now=NOW + 1800)
        assert isinstance(fetch, Fetch)
        assert sum(len(name) + len(value) + 4 for name, value in fetch.request.fields) < 200


class TestIana:
    def test_the_uri_suffix(self):
        """This document defines well-known URI suffix traffic-advice as described by [WELL-KNOWN]."""
        assert PATH == "/.well-known/traffic-advice"

    def test_the_media_type(self):
        """This document defines the MIME type application/trafficadvice+json as described by [RFC6838]."""
        assert MEDIA_TYPE == "application/trafficadvice+json"

    def test_the_encoding(self):
        """Encoding considerations Always UTF-8"""
        written = document([Entry("Prüfer", disallow=True), Entry("*", fraction=0.5)])
        assert written.decode() == '[{"user_agent":"Prüfer","disallow":true},{"user_agent":"*","fraction":0.5}]'
        assert parse_advice_bytes(written, AgentIdentity(["Prüfer", "*"])) == AdviceEntry(disallowed=True)
