"""traffic-advice.txt, clause by clause: each docstring quotes the sentences its test proves."""

import itertools
import json
import random

import msgspec
import pytest

from headgate.advice import MEDIA_TYPE, PATH, AdviceCache, AgentIdentity, parse_advice, permits
from headgate.advice.cache import Fetch, FetchPending
from headgate.advice.decision import DRAW_PERIOD, Advice, sticky_draw
from headgate.advice.fetching import (
    NETWORK_ERROR,
    AdviceResponse,
    advice_request,
    interpret,
    interpret_fully,
    needs_body,
    traffic_advice_url,
)
from headgate.advice.freshness import DEFAULT_FRESHNESS, MAX_FRESHNESS, MIN_FRESHNESS, fresh_for
from headgate.advice.parser import UNREACHABLE, AdviceEntry, parse_advice_bytes
from headgate.advice_control import Entry, document
from headgate.agent import Courtesy, NoContact
from headgate.errors import ConfigurationError
from headgate.fetch.fetcher import fetch_advice
from headgate.http.h1 import RequestHead, RequestLimits, parse_request_head
from headgate.limit import Rule
from headgate.origin.gateway.advice_resource import AdviceResource
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle
from tests.conformance.advised_proxy import advice_response as origin_response
from tests.conformance.advised_proxy import run
from tests.unit.agent import scripted

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
ORIGIN = "https://example.com"
NOW = 1_700_000_000.0
HALF = b'[{"user_agent":"*","fraction":0.5}]'
TYPED = [("Content-Type", "application/trafficadvice+json")]


def response(status=200, fields=(), body=HALF):
    return AdviceResponse(status, [*TYPED, *fields], body)


def advised(answer, *, now=NOW, cache=None):
    """Fetch into a cache; return the advice that it has then."""
    cache = AdviceCache(IDENTITY) if cache is None else cache
    fetch = cache.ask(ORIGIN, now=now)
    return cache.received(fetch, answer, now=now)


DISALLOWED = b'[{"user_agent":"*","disallow":true}]'


@pytest.fixture
def courteous():
    """Return a function that makes a courtesy, whose origins all have one document, and its clock, a list of one."""

    def make(body, **options):
        now = [NOW]
        throttle = Throttle(Policy(jitter_factor=0))
        courtesy = Courtesy(["ExampleBot", "*"], throttle=throttle, clock=lambda: now[0], **options)
        courtesy._state.advice._default = lambda _, report: report(response(body=body))
        return courtesy, now

    return make


def is_permitted(attempt):
    """Return whether a request may be sent."""
    try:
        for _ in range(3):  # once for the advice
            if (wait := attempt.wait()) is None:
                return True
            wait.block()
    except NoContact:
        return False
    raise AssertionError("the attempt waits for ever")


def is_sent(courtesy, url=f"{ORIGIN}/page"):
    return is_permitted(courtesy.attempt("GET", url))


class Script:
    """A server that answers each request with `said`, and then waits for the other end to close."""

    def __init__(self, said):
        self.said = said
        self.heard = []

    def __call__(self, connection, server):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            piece = connection.recv(65_536)
            if not piece:
                return
            request += piece
        self.heard.append(request)
        connection.sendall(self.said)
        connection.recv(1)


class TestIntroduction:
    @pytest.mark.parametrize("agent", [["ExampleProxy", "prefetch-proxy", "*"], ["ExampleBot", "*"]])
    def test_a_site_owner_advises(self, agent):
        """A proposal to allow site owners to advise prefetch proxies and other agents to disallow traffic."""
        disallowed = AdviceEntry(disallowed=True)
        for name in agent:
            written = document([Entry("SomebodyElse", fraction=0.5), Entry(name, disallow=True)])
            assert parse_advice_bytes(written, AgentIdentity(agent)) == disallowed

    def test_a_server_requests_to_stop_for_some_time(self, courteous):
        """We propose a well-known "traffic advice" resource, analogous to robots.txt (for web crawlers), which allows
        an HTTP server to request that implementing agents stop sending traffic to it for some time."""
        said = document([Entry("*", disallow=True)])
        cache = AdviceCache(IDENTITY)
        fetch = cache.ask(ORIGIN, now=NOW)
        assert fetch.request.url == f"{ORIGIN}/.well-known/traffic-advice"
        advice = cache.received(fetch, response(body=said), now=NOW)
        assert NOW < advice.release_time(0.0) == NOW + DEFAULT_FRESHNESS
        courtesy, now = courteous(said)
        assert not is_sent(courtesy)
        now[0] += DEFAULT_FRESHNESS - 1
        assert not is_sent(courtesy)

    def test_applications_and_proxies_respect_it(self, courteous):
        """This specification may be implemented by traffic advice respecting agents, such as proxy servers or other
        applications which direct HTTP traffic on behalf of clients such as a web browser."""
        assert not is_sent(courteous(DISALLOWED)[0])

        async def scenario(origin, proxy):
            origin.response = origin_response(DISALLOWED.decode())
            assert await proxy.connect() == (403, "advice_disallowed")

        run(scenario)


class TestDefinitions:
    def test_an_entry_is_a_struct(self):
        """A traffic advice entry is a struct with the following items:"""
        assert msgspec.structs.asdict(AdviceEntry()) == {"disallowed": False, "fraction": 1.0}

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
        the agent is a proxy server which exclusively serves prefetch traffic (for example, a private prefetch proxy) 3.
        "*" """
        proxy = AgentIdentity.of("PollyPrefetchProxy", prefetch_proxy=True)
        assert proxy == ("PollyPrefetchProxy", "prefetch-proxy", "*")
        assert AgentIdentity.of("PollyBot") == ("PollyBot", "*")

    def test_a_brand_name_is_sent(self):
        """Each agent should have an brand name that specifically identifies it (such as PollyPrefetchProxy)."""
        request = advice_request(ORIGIN, AgentIdentity.of("PollyPrefetchProxy"))
        assert ("User-Agent", "PollyPrefetchProxy") in request.fields


class TestUrl:
    @pytest.mark.parametrize("origin", ["null", "data:text/plain,a", "file:///", "about:blank"])
    def test_step_1(self, origin):
        """To generate a traffic advice URL for origin origin, run the following steps: 1. If origin is not a tuple
        origin, return failure."""
        assert traffic_advice_url(origin) is None

    @pytest.mark.parametrize("origin", ["wss://example.com", "ws://localhost", "ftp://localhost"])
    def test_step_2(self, origin):
        """2. If origin's scheme is not an HTTP(S) scheme, return failure."""
        assert traffic_advice_url(origin) is None

    @pytest.mark.parametrize("origin", ["http://example.com", "http://192.0.2.1", "http://[::2]"])
    def test_step_3(self, origin):
        """3. If origin is not a potentially trustworthy origin, return failure."""
        assert traffic_advice_url(origin) is None
        assert traffic_advice_url(origin.replace("http:", "https:")) is not None

    @pytest.mark.parametrize("origin", ["https://example.com", "https://example.com:8443", "http://127.0.0.1:8000"])
    def test_step_4(self, origin):
        """4. Return a new URL as follows: scheme origin's scheme host origin's host port origin's port path «
        ".well-known", "traffic-advice" »"""
        assert traffic_advice_url(origin) == f"{origin}/.well-known/traffic-advice"


class TestFetching:
    def test_step_1(self):
        """To fetch traffic advice for origin origin, agent identity identity and algorithm whenComplete accepting a
        traffic advice result: 1. Let url be the result of generating a traffic advice URL for origin. If it results in
        failure, then return failure."""
        assert advice_request("http://example.com", IDENTITY) is None
        answer = AdviceCache(IDENTITY).ask("http://example.com", now=NOW)
        assert isinstance(answer, Advice)
        assert answer.result is None

    def test_step_2_method_and_url(self):
        """2. Let request be a request as follows: method `GET` URL url"""
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
        other = Script(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        with scripted.serving(other) as elsewhere:
            moved = Script(
                b"HTTP/1.1 %d Moved\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n"
                % (status, elsewhere.port)
            )
            with scripted.serving(moved) as server:
                came = fetch_advice(advice_request(f"http://127.0.0.1:{server.port}", IDENTITY))
        assert (len(moved.heard), other.heard) == (1, [])
        assert came.status == status
        assert interpret(came, IDENTITY) is None

    def test_step_3(self):
        """3. Let fetchController be null."""
        cache = AdviceCache(IDENTITY)
        assert cache.known(ORIGIN, now=NOW) is None
        assert [type(cache.ask(ORIGIN, now=NOW)) for _ in range(3)] == [Fetch, FetchPending, FetchPending]

    def test_step_4_1(self):
        """4. Let processResponse be the following steps, given response response: 1. If response's type is "error",
        then terminate fetchController, run whenComplete with "unreachable", and return."""
        assert not needs_body(NETWORK_ERROR.status, NETWORK_ERROR.fields)
        assert interpret(NETWORK_ERROR, IDENTITY) is UNREACHABLE

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_step_4_2(self, status):
        """2. If response's type is "opaqueredirect", then terminate fetchController, run whenComplete with null, and
        return."""
        assert not needs_body(status, TYPED)
        assert interpret(response(status), IDENTITY) is None

    def test_step_4_3(self):
        """3. Assert: response's type is "basic"."""
        kinds = {}
        for status in range(1_000):
            reason = interpret_fully(response(status), IDENTITY).reason
            kind = "error" if reason == "no response received" else "redirect" if "redirect" in reason else "basic"
            kinds.setdefault(kind, []).append(status)
        assert (kinds["error"], kinds["redirect"]) == ([0], [301, 302, 303, 307, 308])

    @pytest.mark.parametrize("status", [429, 503])
    def test_step_4_4(self, status):
        """4. If response's status is 429 (Too Many Requests; see [RFC6585]) or 503 (Service Unavailable; see
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
        """5. If response's status is not an ok status, then terminate fetchController, run whenComplete with null and
        return."""
        assert not needs_body(status, TYPED)
        assert interpret(response(status), IDENTITY) is None

    @pytest.mark.parametrize("status", [204, 205])
    def test_step_4_6(self, status):
        """6. If response's status is a null body status, then terminate fetchController, run whenComplete with null and
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
        """7. Let mimeType be the result of extracting a MIME type from response's header list."""
        fields = [("Content-Type", line) for line in lines]
        assert interpret(AdviceResponse(200, fields, HALF), IDENTITY) == expected

    @pytest.mark.parametrize("fields", [[], [("Content-Type", "nonsense")], [("Content-Type", "application/json")]])
    def test_step_4_8(self, fields):
        """8. If mimeType is failure or its essence is not "application/trafficadvice+json", then terminate
        fetchController, run whenComplete with null and return."""
        assert not needs_body(200, fields)
        assert interpret(AdviceResponse(200, fields, HALF), IDENTITY) is None

    def test_end_of_body_step_1(self):
        """5. Let processResponseEndOfBody be the following steps, given response response and null, failure or byte
        sequence body: 1. If body is not a byte sequence, then run whenComplete with null and return."""
        assert interpret(response(body=None), IDENTITY) is None

    def test_end_of_body_step_2(self):
        """2. Let string be the result of UTF-8 decoding body."""
        body = b'\xef\xbb\xbf[{"user_agent":"\xff","disallow":true},{"user_agent":"*","fraction":0.5}]'
        assert interpret(response(body=body), IDENTITY) == AdviceEntry(fraction=0.5)

    def test_end_of_body_step_3(self):
        """3. Let parseResult be the result of parsing traffic advice from string given identity."""
        assert interpret(response(), IDENTITY) == parse_advice(HALF.decode(), IDENTITY)
        assert interpret(response(), IDENTITY) == parse_advice_bytes(HALF, IDENTITY) == AdviceEntry(fraction=0.5)

    def test_end_of_body_step_4(self):
        """4. Run whenComplete with parseResult."""
        cache = AdviceCache(IDENTITY)
        told = advised(response(), cache=cache)
        assert told.result == AdviceEntry(fraction=0.5)
        assert cache.ask(ORIGIN, now=NOW + 1) == cache.known(ORIGIN, now=NOW + 1) == told

    @pytest.mark.parametrize(
        ("head", "body", "result"),
        [
            # The body of the first two never arrives: a fetch that waited for it would report that.
            (b"404 Not Found\r\nContent-Length: 1000000", b"", None),
            (b"200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000", b"", None),
            (
                b"200 OK\r\nContent-Type: application/trafficadvice+json\r\nContent-Length: %d" % len(HALF),
                HALF,
                AdviceEntry(fraction=0.5),
            ),
        ],
    )
    def test_step_6(self, head, body, result):
        """6. Fetch request with processResponse set to processResponse and processResponseEndOfBody set to
        processResponseEndOfBody, and set fetchController to the result."""
        script = Script(b"HTTP/1.1 %s\r\n\r\n%s" % (head, body))
        with scripted.serving(script) as server:
            came = fetch_advice(advice_request(f"http://127.0.0.1:{server.port}", IDENTITY))
        assert len(script.heard) == 1
        assert (came.body, came.failure) == (body or None, "")
        assert interpret(came, IDENTITY) == result

    def test_step_6_minimum_and_maximum(self):
        """Notwithstanding the usual behavior of [HTTP-CACHING], agents (especially ones shared amongst multiple users)
        should consider applying a minimum freshness lifetime (10 minutes is suggested) and maximum freshness lifetime
        (48 hours is suggested) in order to balance the security considerations discussed below."""
        for directive, seconds in (("max-age=1", 600), ("max-age=3600", 3600), ("max-age=999999", 172_800)):
            assert advised(response(fields=[("Cache-Control", directive)])).fresh_until == NOW + seconds
        assert (MIN_FRESHNESS, MAX_FRESHNESS) == (10 * 60, 48 * 60 * 60)

    def test_step_6_default(self):
        """If these suggested values are used, a default freshness lifetime (if none is specified) of 30 minutes may be
        appropriate."""
        assert advised(response()).fresh_until == NOW + 30 * 60
        assert fresh_for(response(404), None, now=NOW) == DEFAULT_FRESHNESS == 30 * 60


class TestParsing:
    @staticmethod
    def read(text, identity=IDENTITY):
        return parse_advice(text, identity)

    @pytest.mark.parametrize("text", ["", "[", '[{"user_agent":"*"},]', '[{"user_agent":"*","fraction":NaN}]'])
    def test_step_1(self, text):
        """To parse traffic advice from a string string given agent identity identity: 1. Let parsed be the result of
        parsing JSON into Infra values given string. If this throws an exception, then return null."""
        assert self.read(text) is None

    @pytest.mark.parametrize("text", ['{"user_agent":"*"}', "null", '"*"', "1", "true"])
    def test_step_2(self, text):
        """2. If parsed is not a list, then return null."""
        assert self.read(text) is None

    def test_step_3(self):
        """3. Let bestMatch be null."""
        assert self.read(HALF.decode()) == AdviceEntry(fraction=0.5)
        assert self.read('[{"user_agent":"OtherProxy"}]') is None

    def test_step_4(self):
        """4. For each entry of parsed:"""
        others = [{"user_agent": f"Other{number}", "disallow": True} for number in range(1_000)]
        assert self.read(json.dumps([*others, {"user_agent": "*", "fraction": 0.5}])) == AdviceEntry(fraction=0.5)

    def test_step_4_1(self):
        """1. If entry is not a map, then continue."""
        assert self.read('[null,1,"*",["*"],{"user_agent":"*"}]') == AdviceEntry()

    @pytest.mark.parametrize("entry", ["{}", '{"user_agent":null}', '{"user_agent":1}', '{"user_agent":["*"]}'])
    def test_step_4_2(self, entry):
        """2. If entry["user_agent"] does not exist or is not a string, then continue."""
        assert self.read(f"[{entry}]") is None

    @pytest.mark.parametrize("selector", ["OtherProxy", "exampleproxy", "Prefetch-Proxy", "* ", ""])
    def test_step_4_4(self, selector):
        """3. Let agentSelector be entry["user_agent"]. 4. If identity does not contain agentSelector, then continue."""
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
        """5. If bestMatch is null or agentSelector appears at an earlier index in identity than bestMatch["user_agent"]
        does, then set bestMatch to entry."""
        entries = [f'{{"user_agent":"{name}","fraction":{number / 10}}}' for number, name in enumerate(selectors)]
        assert self.read(f"[{','.join(entries)}]") == AdviceEntry(fraction=chosen / 10)

    def test_step_5(self):
        """5. If bestMatch is null, then return null."""
        assert self.read("[]") is None
        assert self.read('[{"user_agent":"OtherProxy","disallow":true}]') is None

    def test_step_6(self):
        """6. Let entry be a traffic advice entry."""
        assert self.read('[{"user_agent":"*","other":0}]') == AdviceEntry(disallowed=False, fraction=1.0)

    @pytest.mark.parametrize(
        ("value", "disallowed"), [("true", True), ("false", False), ('"true"', False), ("1", False)]
    )
    def test_step_7(self, value, disallowed):
        """7. If bestMatch["disallow"] exists and is true, then set entry's disallowed flag to true."""
        assert self.read(f'[{{"user_agent":"*","disallow":{value}}}]') == AdviceEntry(disallowed=disallowed)

    @pytest.mark.parametrize("value", ['"0.5"', "true", "null", "[0.5]"])
    def test_step_8(self, value):
        """8. If bestMatch["fraction"] exists and is a number, then: 1. Let fraction be bestMatch["fraction"]."""
        assert self.read(f'[{{"user_agent":"*","fraction":{value}}}]') == AdviceEntry(fraction=1.0)
        assert self.read('[{"user_agent":"*","fraction":0.5}]') == AdviceEntry(fraction=0.5)

    @pytest.mark.parametrize(
        ("value", "fraction"), [("0", 0.0), ("-0", 0.0), ("0.5", 0.5), ("1", 1.0), ("1.1", 1.0), ("-0.1", 1.0)]
    )
    def test_step_8_2(self, value, fraction):
        """2. If fraction is greater than or equal to 0 and less than or equal to 1, then set entry's fraction to
        fraction."""
        assert self.read(f'[{{"user_agent":"*","fraction":{value}}}]') == AdviceEntry(fraction=fraction)

    def test_step_9(self):
        """9. Return entry."""
        assert self.read('[{"user_agent":"*","disallow":true,"fraction":0.5}]') == AdviceEntry(True, 0.5)


class TestInterpretation:
    def test_advice_is_fetched_and_cached(self):
        """When they would be able to respect advice to disallow traffic to an origin (for example, when requested to
        proxy prefetch traffic to the origin), traffic advice respecting agents should fetch traffic advice (respecting
        [HTTP-CACHING] semantics)."""
        cache = AdviceCache(IDENTITY)
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        assert isinstance(cache.ask(ORIGIN, now=NOW), FetchPending)
        cache.received(fetch, response(fields=[("Cache-Control", "max-age=3600"), ("ETag", '"a"')]), now=NOW)
        assert cache.ask(ORIGIN, now=NOW + 3599).result == AdviceEntry(fraction=0.5)
        again = cache.ask(ORIGIN, now=NOW + 3600)
        assert ("If-None-Match", '"a"') in again.request.fields
        renewed = cache.received(again, AdviceResponse(304, [], None), now=NOW + 3600)
        assert (renewed.result, renewed.fresh_until) == (AdviceEntry(fraction=0.5), NOW + 7200)

    def test_null_means_no_advice(self, courteous):
        """If the result is null, then no advice was received. Agents should adopt their default behavior."""
        assert advised(response(404)).release_time(1.0) == ASAP
        assert is_sent(courteous(b"nothing")[0])

    def test_an_unreachable_origin_is_held(self):
        """If the result is "unreachable", then the HTTP server was not able to service the request for traffic advice.
        Since this could indicate that the server cannot accept additional requests at this time, agents may stop
        traffic to the server for some interval."""
        advice = advised(response(503, [("Retry-After", "120")]))
        assert advice.result is UNREACHABLE
        assert advice.release_time(0.0) == NOW + 120
        assert advised(NETWORK_ERROR).release_time(0.0) == ASAP

    def test_disallowed_is_respected(self, courteous):
        """If the result's disallowed flag is true, then the HTTP server advises that traffic is discouraged at this
        time. Agents should respect this by not establishing new connections or sending new requests."""
        advice = advised(response(body=b'[{"user_agent":"*","disallow":true}]'))
        assert not permits(advice.result, 0.0)
        assert advice.release_time(0.0) == advice.fresh_until > NOW
        courtesy, now = courteous(DISALLOWED, draw=lambda: 1 - 2**-53)
        for second in range(0, 1_800, 60):
            now[0] = NOW + second
            assert not is_sent(courtesy, f"{ORIGIN}/{second}")
        assert is_sent(courtesy, "http://not-trustworthy.example/")

    def test_only_a_fraction_is_wanted(self, courteous):
        """Otherwise, if the result's fraction is less than 1, then the HTTP server advises that it would like to
        receive only a fraction of the possible traffic."""
        chance = random.Random(1)
        some, _ = courteous(HALF, draw=chance.random)
        assert 160 < sum(is_sent(some) for _ in range(400)) < 240
        every, _ = courteous(b'[{"user_agent":"*","fraction":1}]', draw=chance.random)
        assert all(is_sent(every) for _ in range(400))

    @pytest.mark.parametrize(("draw", "permitted"), [(0.0, True), (0.1, True), (0.1000001, False), (1.0, False)])
    def test_steps_1_to_3(self, draw, permitted):
        """Agents may implement this as they see fit, but the following algorithm is suggested on establishment of an
        HTTP connection on behalf of a client. 1. Choose a uniform random number r between 0 and 1. 2. If r is less than
        or equal to the result's fraction, then the traffic is permitted by the fraction. 3. Otherwise, a connection is
        not established."""
        assert permits(AdviceEntry(fraction=0.1), draw) is permitted

    def test_it_is_not_repeated(self, courteous):
        """This process should not be repeated as part of automatic retry logic, since this would defeat the server's
        ability to shed load in this manner."""
        drawn = itertools.count()
        courtesy, now = courteous(HALF, draw=lambda: (next(drawn), 0.7)[1], retry=1, max_delay=60)
        attempt = courtesy.attempt("GET", f"{ORIGIN}/page")
        assert is_permitted(attempt)
        assert not attempt.received(503, {})
        now[0] += 60
        assert is_permitted(attempt)
        assert next(drawn) == 1

    @pytest.mark.parametrize("fraction", [0.1, 0.2, 0.4, 0.8])
    def test_a_fraction_is_a_fraction_of_the_traffic(self, fraction):
        """Broadly, agents should aim for a fraction of 0.1 to result in approximately 10% of the traffic to the HTTP
        server."""
        entry, chance = AdviceEntry(fraction=fraction), random.Random(1)
        permitted = sum(permits(entry, chance.random()) for _ in range(50_000))
        assert abs(permitted / 50_000 - fraction) < 0.01

    def test_traffic_scales_with_the_fraction(self):
        """This approach allows servers to scale their traffic proportionally as part of an incremental rollout."""
        clients, before = [b"192.0.2.%d" % number for number in range(4_000)], 0
        for fraction in (0.0, 0.1, 0.2, 0.4, 0.8, 1.0):
            entry = AdviceEntry(fraction=fraction)
            permitted = sum(permits(entry, sticky_draw(b"k" * 32, client, ORIGIN, now=NOW)) for client in clients)
            # Five standard deviations.
            assert abs(permitted - fraction * 4_000) <= 5 * (4_000 * fraction * (1 - fraction)) ** 0.5
            assert permitted > before or fraction == 0
            before = permitted
        draws = [random.Random(2).random() for _ in range(100)]
        assert all(
            permits(AdviceEntry(fraction=0.4), draw) for draw in draws if permits(AdviceEntry(fraction=0.2), draw)
        )

    def test_every_client_is_treated_alike(self):
        """Agents should avoid approaches which might bias the permitted connections or requests in ways that might make
        this scaling non-linear (e.g., by preferring certain kinds of connection or user)."""
        clients = [b"192.0.2.%d" % number for number in range(200)]
        permitted = dict.fromkeys(clients, 0)
        for number in range(200):
            entry = AdviceEntry(fraction=0.5)
            for client in clients:
                draw = sticky_draw(b"k" * 32, client, f"https://{number}.example", now=NOW)
                permitted[client] += permits(entry, draw)
        # 200 fair coins each: six standard deviations.
        assert all(abs(count - 100) < 43 for count in permitted.values())


class TestProxy:
    def test_advice_is_fetched_for_a_connect_and_cached(self):
        """When they would be able to respect advice to disallow traffic to an origin (for example, when requested to
        proxy prefetch traffic to the origin), traffic advice respecting agents should fetch traffic advice (respecting
        [HTTP-CACHING] semantics)."""

        async def scenario(origin, proxy):
            origin.response = origin_response("[]", "Cache-Control: max-age=3600")
            assert await proxy.connect() == "tunnel"
            assert [head.split(b" HTTP")[0] for head in origin.requests] == [b"GET /.well-known/traffic-advice"]
            proxy.now += 3_599
            assert [await proxy.connect(f"192.0.2.{number}") for number in range(20)] == ["tunnel"] * 20
            assert (len(origin.requests), await origin.count_connections()) == (1, 1 + 21)
            proxy.now += 1
            await proxy.connect()
            assert len(origin.requests) == 2

        run(scenario)

    @pytest.mark.parametrize(
        "said",
        [origin_response("", status="404 Not Found"), origin_response("{}"), origin_response("[]")],
        ids=["404", "a map", "no entry"],
    )
    def test_null_opens_the_tunnel(self, said):
        """If the result is null, then no advice was received. Agents should adopt their default behavior."""

        async def scenario(origin, proxy):
            origin.response = said
            assert await proxy.connect() == "tunnel"

        run(scenario)

    @pytest.mark.parametrize(("unreachable", "becomes"), [("hold", (403, "advice_unreachable")), ("permit", "tunnel")])
    def test_unreachable_is_held_or_permitted(self, unreachable, becomes):
        """If the result is "unreachable", then the HTTP server was not able to service the request for traffic advice.
        Since this could indicate that the server cannot accept additional requests at this time, agents may stop
        traffic to the server for some interval."""

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

    def test_disallowed_opens_no_connection(self):
        """If the result's disallowed flag is true, then the HTTP server advises that traffic is discouraged at this
        time. Agents should respect this by not establishing new connections or sending new requests."""

        async def scenario(origin, proxy):
            origin.response = origin_response('[{"user_agent":"prefetch-proxy","disallow":true}]')
            assert await proxy.clients_with_a_tunnel(50) == set()
            # That one was for the advice.
            assert (await origin.count_connections(), len(origin.requests)) == (1, 1)
            assert proxy.counts.connects == {"advice_disallowed": 50}

        run(scenario)

    def test_a_fraction_of_the_clients_gets_a_tunnel(self):
        """Otherwise, if the result's fraction is less than 1, then the HTTP server advises that it would like to
        receive only a fraction of the possible traffic."""

        async def scenario(origin, proxy):
            origin.response = origin_response('[{"user_agent":"*","fraction":0.5}]')
            assert 60 < len(await proxy.clients_with_a_tunnel(200)) < 140
            assert set(proxy.counts.connects) == {"accepted", "advice_fraction"}

        run(scenario)

    @pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
    def test_steps_1_to_3(self, fraction):
        """Agents may implement this as they see fit, but the following algorithm is suggested on establishment of an
        HTTP connection on behalf of a client. 1. Choose a uniform random number r between 0 and 1. 2. If r is less than
        or equal to the result's fraction, then the traffic is permitted by the fraction. 3. Otherwise, a connection is
        not established."""

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

    def test_a_second_request_has_the_same_draw(self):
        """This process should not be repeated as part of automatic retry logic, since this would defeat the server's
        ability to shed load in this manner."""

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

    def test_a_tenth_is_a_tenth_of_the_clients(self):
        """Broadly, agents should aim for a fraction of 0.1 to result in approximately 10% of the traffic to the HTTP
        server."""

        async def scenario(origin, proxy):
            origin.response = origin_response('[{"user_agent":"*","fraction":0.1}]')
            assert abs(len(await proxy.clients_with_a_tunnel(2_000)) - 200) < 4 * 13.4

        run(scenario)

    def test_a_rollout_scales(self):
        """This approach allows servers to scale their traffic proportionally as part of an incremental rollout."""

        async def scenario(origin, proxy):
            tunnels = []
            for fraction in (0.1, 0.2, 0.4, 0.8):
                origin.response = origin_response(f'[{{"user_agent":"*","fraction":{fraction}}}]')
                tunnels.append(len(await proxy.clients_with_a_tunnel(500)) / 500)
                proxy.now += 1_800
            # Four standard deviations of 500 draws are 0.09 at the most.
            assert tunnels == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.09)

        run(scenario)

    def test_no_client_is_preferred(self):
        """Agents should avoid approaches which might bias the permitted connections or requests in ways that might make
        this scaling non-linear (e.g., by preferring certain kinds of connection or user)."""

        async def scenario(origin, proxy):
            origin.response = origin_response('[{"user_agent":"*","fraction":0.5}]')
            here = await proxy.clients_with_a_tunnel(200)
            there = await proxy.clients_with_a_tunnel(200, host="other.example.org")
            # Each half of the clients, by one origin, is halved by another: six standard deviations.
            assert abs(len(here & there) - 50) < 37
            assert abs(len(here - there) - 50) < 37

        run(scenario)

    def test_a_small_request_causes_no_larger_one(self):
        """Agents which are proxy services accessible to untrusted users (esp. the general public) may be susceptible to
        being used to amplify a denial of service attack conducted, for example, by a botnet. For example, if a small
        request from a client (e.g. CONNECT target.example:443 with small headers) can cause a larger request (e.g., GET
        /.well-known/traffic-advice with large headers) to the origin server, this could be used to increase the
        effective bandwidth available to the distributed denial of service attack against an origin server."""

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

    def test_the_origin_learns_nothing_about_the_client(self):
        """Most privacy considerations are expected to be particular to the agents in question (for example, proxies
        inspecting traffic they carry)."""

        async def scenario(origin, proxy):
            await proxy.connect(
                "192.0.2.77", fields=[("user-agent", "Secret/1"), ("cookie", "a=b"), ("forwarded", "x")]
            )
            names = [line.partition(b":")[0] for line in origin.requests[0].splitlines()[1:-1]]
            assert names == [b"Host", b"Accept", b"Accept-Encoding", b"User-Agent", b"Connection"]
            assert b"User-Agent: PollyPrefetchProxy\r\n" in origin.requests[0]
            assert b"192.0.2.77" not in origin.requests[0]

        run(scenario)


class TestSecurity:
    @pytest.mark.parametrize("destination", ["script", "document", "image", "empty"])
    def test_every_destination_gets_advice_and_nothing_else(self, destination):
        """Like other resources, it is possible that the /.well-known/traffic-advice path could be used for a request
        with some other destination (e.g., as a script)."""
        resource = AdviceResource(document([Entry("*", disallow=True)]))
        fields = f"Host: a.example\r\nSec-Fetch-Dest: {destination}\r\n".encode()
        head = b"GET %b HTTP/1.1\r\n%b\r\n" % (PATH.encode(), fields)
        given = resource.respond(parse_request_head(head, RequestLimits()), b"192.0.2.1", now=NOW)
        assert (given.status, given.body) == (200, DISALLOWED)
        assert dict(given.fields)[b"content-type"] == b"application/trafficadvice+json"

    def test_a_published_document_has_no_effect_as_a_script(self):
        """If interpreted as JavaScript, the JSON data would either be syntactically invalid or an empty block."""
        names = ["</script>", "${alert(1)}", "*/alert(1)/*", "a\u2028b", '"+alert(1)+"', "__proto__"]
        written = document([*(Entry(name, disallow=True) for name in names), Entry("*", fraction=0.5)])
        # A literal: a list of maps of texts, booleans and numbers. JSON is part of the language of scripts.
        assert written.startswith(b"[{")
        items = json.loads(written)
        assert [item["user_agent"] for item in items] == [*names, "*"]
        assert {type(value) for item in items for value in item.values()} == {str, bool, float}
        assert {name for item in items for name in item} == {"user_agent", "disallow", "fraction"}

    def test_the_media_type_is_exclusive_to_advice(self):
        """More generally, this specification requires the use of a MIME type that is not used for any other purpose,
        and standard countermeasures (e.g., X-Content-Type-Options: nosniff) can be used to prevent type confusion in
        some cases which are permissive of mismatched MIME types."""
        assert interpret(AdviceResponse(200, [("Content-Type", "application/json")], HALF), IDENTITY) is None
        head = b"GET %b HTTP/1.1\r\nHost: a.example\r\n\r\n" % PATH.encode()
        given = dict(
            AdviceResource(HALF).respond(parse_request_head(head, RequestLimits()), b"192.0.2.1", now=NOW).fields
        )
        assert given[b"content-type"] == b"application/trafficadvice+json"
        assert given[b"x-content-type-options"] == b"nosniff"

    @pytest.mark.parametrize(
        "field", [("Cache-Control", "max-age=63072000"), ("Expires", "Fri, 31 Dec 9999 23:59:59 GMT")]
    )
    def test_a_policy_does_not_last(self, field):
        """Because the traffic advice resource is expected to be cached by traffic advice respecting agents such as
        private prefetch proxies, it is possible that a temporary compromise of an origin server or its private key
        could be extended to a longer outage of some traffic due to an agent caching a policy that prevents or throttles
        traffic, leading to a denial of service for such traffic. To mitigate this, well-behaved agents implement a
        maximum freshness lifetime when they fetch traffic advice."""
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

        async def scenario(origin, proxy):
            # The proxy's other measures: here, a rate for each client.
            given = [await proxy.connect() for _ in range(4)]
            assert given == ["tunnel", "tunnel", (429, "client_rate"), (429, "client_rate")]
            assert len(origin.requests) == 1

        run(scenario, rule=Rule.parse("1 per 10s burst 2"))


class TestIana:
    def test_the_uri_suffix(self):
        """This document defines well-known URI suffix traffic-advice as described by [WELL-KNOWN]. URI suffix
        traffic-advice"""
        assert PATH == "/.well-known/traffic-advice"

    def test_the_media_type(self):
        """This document defines the MIME type application/trafficadvice+json as described by [RFC6838]. Type name
        application Subtype name trafficadvice+json"""
        assert MEDIA_TYPE == "application/trafficadvice+json"

    @pytest.mark.parametrize("parameters", ["", ";charset=utf-16", '; a="b,c"', ";;x"])
    def test_no_parameters(self, parameters):
        """Required parameters N/A Optional parameters N/A"""
        fields = [("Content-Type", f"application/trafficadvice+json{parameters}")]
        assert interpret(AdviceResponse(200, fields, HALF), IDENTITY) == AdviceEntry(fraction=0.5)

    def test_the_encoding(self):
        """Encoding considerations Always UTF-8"""
        written = document([Entry("Prüfer", disallow=True), Entry("*", fraction=0.5)])
        assert written.decode() == '[{"user_agent":"Prüfer","disallow":true},{"user_agent":"*","fraction":0.5}]'
        assert parse_advice_bytes(written, AgentIdentity(["Prüfer", "*"])) == AdviceEntry(disallowed=True)
        fields = [("Content-Type", "application/trafficadvice+json;charset=iso-8859-1")]
        read = interpret(AdviceResponse(200, fields, written), AgentIdentity(["Prüfer", "*"]))
        assert read == AdviceEntry(disallowed=True)

    def test_any_reader_of_json_can_read_it(self):
        """Applications which can process application/json should be able to process all valid data with this MIME
        type."""
        written = document([Entry("Prüfer", disallow=True), Entry("*", fraction=0.1)])
        expected = [{"user_agent": "Prüfer", "disallow": True}, {"user_agent": "*", "fraction": 0.1}]
        assert json.loads(written) == msgspec.json.decode(written) == expected

    def test_agents_ask_for_it(self):
        """Applications that use this media type traffic advice respecting agents"""
        request = advice_request(ORIGIN, IDENTITY)
        assert [value for name, value in request.fields if name == "Accept"] == [MEDIA_TYPE]

    def test_the_name_of_the_resource(self):
        """File extension(s) None. This resource will be named traffic-advice when fetched over HTTP."""
        path = advice_request(f"{ORIGIN}/a.json?b#c", IDENTITY).url.removeprefix(ORIGIN)
        assert path.rpartition("/")[2] == "traffic-advice"
        assert AdviceResource.is_for(RequestHead(b"", b"GET", path.encode()))
        assert not AdviceResource.is_for(RequestHead(b"", b"GET", path.encode() + b".json"))
