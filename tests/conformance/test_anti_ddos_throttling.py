"""anti-ddos-throttling.txt, sentence by sentence: each docstring quotes the sentences its test proves."""

import random
from itertools import pairwise

import httpx2
import pytest

from headgate.agent import Courtesy, NoContact
from headgate.agent.httpx import Transport
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle
from tests.conformance.overload import overload

NOW = 1_763_683_200.0
HOST = "http://www.example.com"
X = f"{HOST}/x"
PLAIN = Policy(jitter_factor=0)


def respond(throttle, *statuses, url=X, now=NOW, **headers):
    """Count responses with these statuses; `DDoS_Bucket_With="/a"` adds a field to each."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    for status in statuses:
        throttle.response_received(url, status, fields, now=now)
    return throttle


def held(throttle, url=X, *, now=NOW):
    return throttle.release_time(url, now=now) > now


def waits(throttle, url=X, *, now=NOW):
    return max(0.0, throttle.release_time(url, now=now) - now)


def failures(throttle, url=X):
    return throttle.explain(url, now=NOW).failures


class Client:
    """An HTTP client with a courtesy, and a server that counts the requests."""

    def __init__(self, *statuses):
        self.now = NOW
        self.sent = []
        self.statuses = list(statuses)
        self.server = httpx2.MockTransport(self.answer)
        self.courtesy = Courtesy(policy=PLAIN, clock=lambda: self.now)
        self.client = httpx2.Client(transport=Transport(self.courtesy, self.server))

    def answer(self, request):
        self.sent.append(self.now)
        return httpx2.Response(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])

    def get(self, url=X, **options):
        """Send a request; return False if it was held."""
        try:
            self.client.get(url, **options)
        except NoContact:
            return False
        return True


class TestIntroduction:
    def test_a_program_in_a_loop_is_held(self):
        """Describes a throttling mechanism User-Agents can implement that limits the ability of websites and browser
        extensions to perpetrate a DDoS (Distributed Denial of Service) attack."""
        program = Client(503)
        for step in range(6_000):
            program.now = NOW + step / 100
            program.get()
        # Three, and then one at the end of each period: the ninth lasts 14 seconds, the tenth to beyond the minute.
        assert len(program.sent) == 12

    def test_it_is_in_the_http_stack(self):
        """This Internet-Draft specifies an anti-DDoS mechanism that can be built into the HTTP stack of User-Agents and
        is intended to limit the impact of DDoS attacks perpetrated by web pages or browser extensions."""
        program = Client(503)
        # What calls the client has no part in it: a plain call of the library, and the library's own error.
        assert [program.client.get(X).status_code for _ in range(3)] == [503] * 3
        with pytest.raises(httpx2.TransportError):
            program.client.get(X)

    @pytest.mark.parametrize(("status", "backs_off"), [(503, True), (500, True), (404, False), (429, False)])
    def test_statuses_of_overload_make_it_back_off(self, status, backs_off):
        """The anti-DDoS mechanism is primarily to make the User-Agent throttle requests based on randomized exponential
        backoff when a web server sends status codes that indicate overload."""
        delays = {waits(respond(Throttle(draw=random.Random(seed).random), *[status] * 5)) for seed in range(20)}
        assert (len(delays) == 20) is backs_off
        assert (min(delays) > 1.4) is backs_off

    def test_the_aggregate_traffic_decreases(self):
        """This causes the aggregate traffic from a multitude of User-Agents that have this mechanism to decrease to a
        level the web server can sustain."""
        past = overload(capacity=10, seconds=600)
        assert past[0].sent == 20 * 10
        assert sum(second.sent for second in past[60:120]) / 60 < 3 * 10
        assert sum(second.sent for second in past[-60:]) / 60 < 2.1 * 10

    def test_servers_need_not_know_of_it_and_gain_when_they_do(self):
        """Additionally, we have implemented a couple of custom HTTP response headers that help servers further control
        their traffic. The goal is to provide DDoS protection for all web servers on the Internet without requiring them
        to be modified in any way, but allowing for better DDoS prevention and traffic management for web servers that
        are aware of the anti-DDoS mechanism."""
        assert held(respond(Throttle(), 503, 503, 503))
        named = {"Retry-After": "9", "Exponential-Throttling": "disable", "DDoS-Bucket-With": "/"}
        others = {"X-Retry-After": "9", "Throttling": "disable", "Bucket": "/", "RateLimit": "x"}

        def outcome(fields):
            throttle = Throttle(PLAIN)
            for _ in range(3):
                throttle.response_received(X, 503, fields, now=NOW)
            return waits(throttle), waits(throttle, f"{HOST}/y")

        plain = outcome({})
        assert [outcome({name: value}) for name, value in others.items()] == [plain] * 4
        assert [outcome({name: value}) for name, value in named.items()] == [
            (pytest.approx(9), 0.0),
            (0.0, 0.0),
            (plain[0], plain[0]),
        ]


class TestBackground:
    def test_an_accident_is_limited_and_not_blocked(self):
        """Consider for example a hypothetical web site A using Cross-Origin Resource Sharing (CORS) to communicate with
        web site B. Now imagine that a new version of web site A is rolled out, which accidentally increases the
        frequency of requests to site B from once every 5 minutes to once every 5 seconds. Assuming that site A has a
        non-trivial number of users compared to site B, what you could have on your hands is an unintentional DDoS
        attack, one where you may not want to completely block the attackers but rather rate-limit them."""
        site = Client(*[503] * 20, 200)
        for step in range(0, 7_200, 5):
            site.now = NOW + step
            site.get()
        failing = site.sent[:20]
        pauses = [after - before for before, after in pairwise(failing)]
        # For its first hour the server fails, and gets 20 of 720 requests; in the second, as soon as it is well, all.
        assert pauses == sorted(pauses)
        assert 3 * 60 < pauses[-1] < 900
        assert site.sent[-700:] == [NOW + step for step in range(7_200 - 700 * 5, 7_200, 5)]

    def test_all_callers_are_held_alike(self):
        """Other potential attackers in this kind of scenario could be popular browser extensions that are updated to a
        version with a similar bug, or your own website making AJAX requests to itself. The Anti-DDoS mechanism we
        describe in this RFC can help deal with these unintentional attacks in addition to malicious attacks."""
        several = Client(503)
        for page in ("https://a.example", "https://a.example", "extension://x"):
            several.get(headers={"Origin": page})
        assert [several.get(headers={"Origin": page}) for page in ("https://b.example", HOST, "null")] == [False] * 3
        assert not several.get()

    def test_requests_outside_the_transport_are_not_held(self):
        """It should be noted that DDoS attacks by software not running on top of a User-Agent are not affected by this
        mechanism; native software or other application software with low-level network access could always bypass any
        mechanisms put in place by the User-Agent."""
        program = Client(503)
        assert [program.get() for _ in range(5)] == [True] * 3 + [False] * 2
        with httpx2.Client(transport=program.server) as native:
            assert [native.get(X).status_code for _ in range(5)] == [503] * 5


class TestComponents:
    def test_observes_per_target(self):
        """The anti-DDoS mechanism described here has these basic components: It observes HTTP response codes on a per
        throttling target basis."""
        throttle = respond(Throttle(), 503, 503, 503)
        assert held(throttle)
        assert not held(throttle, f"{HOST}/y")

    def test_a_target_is_a_url_minus_its_query_parameters(self):
        """A throttling target is demarcated as a URL minus its query parameters."""
        throttle = Throttle()
        for query in ("", "?a=1", "?b"):
            respond(throttle, 503, url=X + query)
        assert [held(throttle, url) for url in (X, f"{X}?c", f"{X}/", f"{HOST}:81/x")] == [True, True, False, False]

    def test_a_few_in_a_row_make_a_period_that_grows(self):
        """Once a few HTTP response codes in a row for a given throttling target have indicated that the web server is
        too busy (e.g. a 503 response), block off an exponentially increasing (with some randomization) "no contact"
        period for this throttling target."""
        throttle = Throttle(PLAIN)
        periods = [waits(respond(throttle, 503)) for _ in range(6)]
        assert periods[:2] == [0.0, 0.0]
        grown = [after / before for before, after in pairwise(periods[2:])]
        assert grown == pytest.approx([1.4] * 3)

    def test_requests_are_disallowed_during_the_period(self):
        """Disallow further requests made for the throttling target during the "no contact" period."""
        throttle = respond(Throttle(PLAIN), 503, 503, 503)
        assert held(throttle, now=NOW + 0.97)
        assert not held(throttle, now=NOW + 0.98)

    def test_the_parameters_are_fairly_conservative(self):
        """Use exponential backoff parameters that are fairly conservative, so as not to block contact with a web server
        for too long, but at the same time are proven to reduce traffic to an overloaded web server quite quickly."""
        throttle, now, asked = Throttle(PLAIN), 0.0, []
        while now < 3_600:
            asked.append(now)
            respond(throttle, 503, now=now)
            now += max(1.0, waits(throttle, now=now))
        # Of 3,600 requests, one a second, 24 are sent; and the last pause is no longer than a quarter of an hour.
        assert len(asked) < 30
        assert asked[-1] - asked[-2] <= 900

    def test_agents_do_not_come_back_together(self):
        """Backing off exponentially, with some randomization to avoid large numbers of clients retrying at the same
        time, causes the aggregate traffic of clients to fairly quickly decrease to the threshold where the web server
        is not overloaded, or only slightly overloaded, and so is able to mostly stop responding with 5xx status codes.
        This is easy to demonstrate through simulation."""
        agents = [Throttle(draw=random.Random(seed).random) for seed in range(100)]
        releases = {respond(agent, 503, 503, 503).release_time(X, now=NOW) for agent in agents}
        assert len(releases) == 100
        past = overload(capacity=10, seconds=600)
        shares = [second.refused / second.sent for second in past]
        assert shares[0] == 0.95
        assert 0.4 < sum(shares[60:120]) / 60 < 0.65
        assert 0.4 < sum(shares[-60:]) / 60 < 0.55

    def test_a_large_percentage_is_needed(self):
        """However, it is important that a large percentage of clients perform exponential backoff, and for this reason
        we hope that other browser projects will adopt the mechanism."""
        saved = {polite: 200 - overload(capacity=50, polite=polite)[-1].sent for polite in (20, 180, 200)}
        assert saved[180] > 0.8 * saved[200]
        assert saved[20] < 0.3 * saved[200]


class TestBehaviours:
    def test_the_four_behaviours_exist(self):
        """In addition to exponential backoff, there are various behaviors that make this mechanism less likely to cause
        false positives for web developers, less likely to block requests explicitly made by a user, provide more
        control to web servers that are aware of the mechanism, and provide better DDoS prevention in the face of a
        malicious attack:"""
        throttle = Throttle()
        # A developer's own server that is started, stopped and started is never held.
        assert not held(respond(throttle, *[503] * 9, url="http://localhost:3000/"), "http://localhost:3000/")
        # What a user asks for goes, though a page's own requests are held.
        assert held(respond(throttle, *[503] * 9))
        throttle.user_gesture(now=NOW)
        assert not held(throttle)
        # A server that knows of the mechanism decides; and it can defend itself better against many URLs.
        assert not held(respond(throttle, 503, Exponential_Throttling="disable"), now=NOW + 9)
        attacked = "http://attacked.example"
        for number in range(9):
            respond(throttle, 503, url=f"{attacked}/{number}", DDoS_Bucket_With="/")
        assert held(throttle, f"{attacked}/new", now=NOW + 4)

    @pytest.mark.parametrize("host", ["localhost", "localhost:8080", "a.localhost", "127.0.0.1", "[::1]"])
    def test_localhost(self, host):
        """Requests to localhost are never blocked."""
        throttle = Throttle()
        respond(throttle, *[503] * 20, url=f"http://{host}/", Retry_After="60")
        assert not held(throttle, f"http://{host}/")

    def test_a_user_gesture(self):
        """Requests are not blocked if they occur in the first 3.5 seconds after an explicit user gesture, i.e. clicking
        with the mouse or typing on the keyboard and thereby causing input to a web page."""
        throttle = respond(Throttle(), *[503] * 20)
        throttle.user_gesture(now=NOW + 10)
        assert not held(throttle, now=NOW + 10)
        assert not held(throttle, now=NOW + 13.49)
        assert held(throttle, now=NOW + 13.5)

    def test_a_gesture_lets_others_through_too(self):
        """In a DDoS situation, this will tend to let some malicious requests through, but this should be worth it to
        favor actual user actions."""
        throttle = respond(respond(Throttle(), *[503] * 20), *[503] * 20, url="http://malicious.example/")
        assert held(throttle, "http://malicious.example/")
        throttle.user_gesture(now=NOW)
        assert [held(throttle, url) for url in (X, "http://malicious.example/")] == [False, False]

    @pytest.mark.parametrize(("gestures", "percentage"), [(range(0), 0), (range(0, 100, 10), 35)])
    def test_the_percentage_that_goes_through(self, gestures, percentage):
        """The percentage of time malicious requests would go through would be 0% of the time the user is not using the
        browser, and some percentage considerably less than 100% of the time the user is active."""
        throttle, through = respond(Throttle(), *[503] * 60), 0
        for tick in range(1_000):
            if tick % 10 == 0 and tick // 10 in gestures:
                throttle.user_gesture(now=NOW + tick / 10)
            through += not held(throttle, now=NOW + tick / 10)
        assert through == percentage * 10

    def test_opting_out(self):
        """An HTTP response header lets web servers opt out of the anti-DDoS mechanism. The name and value for this
        header is "Exponential-Throttling: disable" and its effect is to opt out the host the request was sent to."""
        throttle = respond(Throttle(), *[503] * 9)
        respond(throttle, *[503] * 9, url="http://other.example/")
        respond(throttle, 404, url=f"{HOST}:8080/y", Exponential_Throttling="disable")
        assert not held(throttle)
        assert held(throttle, "http://other.example/")
        assert held(respond(Throttle(), 503, 503, 503, Exponential_Throttling="enable"))

    def test_the_opt_out_lasts(self):
        """The opt-out must last for the remainder of the browsing session, but multiple opt-outs must be idempotent."""
        throttle = respond(Throttle(), *[200] * 3, Exponential_Throttling="disable")
        throttle.forget(now=NOW + 10**9)
        throttle.reset()
        respond(throttle, *[503] * 20, now=NOW + 10**9)
        assert not held(throttle, now=NOW + 10**9)

    @pytest.mark.parametrize("status", [200, 204, 301, 404, 429, 500, 502, 503])
    def test_retry_after_on_any_status(self, status):
        """The "Retry-After" response header gets slightly different semantics, in that it can now be used for any
        status code, not just a 503 status code, e.g. on a 200 success response."""
        assert waits(respond(Throttle(), status, Retry_After="120")) == 120

    def test_retry_after_controls_the_rate_of_pings(self):
        """It could therefore be used e.g. to optimize AJAX applications, where the client by default pings the server
        very frequently, and the server then controls the actual rate of pings by using this header."""
        throttle, pings = Throttle(), []
        for second in range(100):
            if not held(throttle, now=NOW + second):
                pings.append(second)
                respond(throttle, 200, now=NOW + second, Retry_After="30")
        assert pings == [0, 30, 60, 90]

    def test_a_header_declares_the_bucket(self):
        """An HTTP response header is provided that lets the web server indicate how to bucket the current throttling
        target in the anti-DDoS mechanism. By default, the mechanism observes HTTP response codes on a per throttling
        target basis, i.e. by looking at the URL being requested, minus the query parameters."""
        throttle = respond(Throttle(), 503, 503, url=f"{HOST}/a/1")
        assert throttle.explain(f"{HOST}/a/1", now=NOW).target == f"{HOST}/a/1"
        respond(throttle, 503, url=f"{HOST}/a/1", DDoS_Bucket_With="/a")
        assert throttle.explain(f"{HOST}/a/1", now=NOW).target == f"{HOST}/a*"

    def test_all_urls_below_the_path_are_one_target(self):
        """This header could be used by the web server to state that all URLs on the server starting with a given path
        (the current response being a match for this path) should be observed and blocked together as a single
        throttling target."""
        throttle = Throttle()
        for page in ("1", "2", "3"):
            respond(throttle, 503, url=f"{HOST}/a/{page}", DDoS_Bucket_With="/a")
        assert [held(throttle, HOST + path) for path in ("/a", "/a/4", "/ab", "/")] == [True, True, False, False]
        assert not held(throttle, "https://www.example.com/a/4")
        unmatched = respond(Throttle(), 503, 503, 503, url=f"{HOST}/b/1", DDoS_Bucket_With="/a")
        assert not held(unmatched, f"{HOST}/a/1")

    @pytest.mark.parametrize(
        ("value", "is_path"), [("/a", True), ("/a/", True), ("/", True), ("a", False), ("", False), ("/a b", False)]
    )
    def test_the_value_is_a_cookies_path(self, value, is_path):
        """The header name is "DDoS-Bucket-With" and the value is the same format as the value of the path=foo part of a
        Set-Cookie response header."""
        throttle = respond(Throttle(), 503, 503, 503, url=f"{HOST}/a/1", DDoS_Bucket_With=value)
        assert held(throttle, f"{HOST}/a/2") is is_path

    def test_the_header_need_only_be_set_on_failures(self):
        """The header need only be set on responses that may be considered an indication of a DDoS attack, e.g. 500, 503
        and 509 responses."""
        throttle = respond(Throttle(), 500, 503, 509, url=f"{HOST}/a/1", DDoS_Bucket_With="/a")
        respond(throttle, 200, 503, url=f"{HOST}/a/2")
        assert failures(throttle, f"{HOST}/a/3") == 3

    def test_crafted_urls_are_mitigated_with_buckets(self):
        """It should be noted that even with the anti-DDoS mechanism in place, a malicious DDoS attack could be
        perpetrated on a web server not using the "DDoS-Bucket-With" header, since the malicious attack could craft
        multiple URLs that each are considered a new throttling target. As it stands, without opt-in, some malicious
        attacks and all or most non-malicious (unintentional) attacks are mitigated, and with opt-in via the
        "DDoS-Bucket-With" header, all are mitigated."""

        def sent(**headers):
            throttle, count = Throttle(), 0
            for number in range(1_000):
                url = f"{HOST}/{number}"
                if not held(throttle, url, now=NOW + number / 1_000):
                    count += 1
                    respond(throttle, 503, url=url, now=NOW + number / 1_000, **headers)
            return count

        assert sent() == 1_000
        assert sent(DDoS_Bucket_With="/") < 10
        # Without it, one URL that is asked for again and again is held, whether that is malice or an accident.
        throttle, count = Throttle(), 0
        for number in range(1_000):
            if not held(throttle, now=NOW + number / 1_000):
                count += 1
                respond(throttle, 503, now=NOW + number / 1_000)
        assert count < 10

    def test_sites_on_one_host_are_held_separately(self):
        """This could have been avoided by using the hostname and port number as the throttling target, rather than the
        URL minus query parameters, but this would have made it hard to roll the mechanism out to the entire web without
        opt-in, as there are many web servers that operate many different independent sites or services off the same
        host name."""
        throttle = respond(Throttle(), *[503] * 20, url=f"{HOST}/~one/")
        assert held(throttle, f"{HOST}/~one/?page=2")
        assert not held(throttle, f"{HOST}/~two/")
        assert not held(throttle, f"{HOST}/")


class TestPolicy:
    def test_policy_and_algorithm_are_two(self):
        """There are two parts to exponential backoff - the backoff algorithm and the backoff policy. The components of
        the backoff policy are as follows:"""
        policies = [Policy(jitter_factor=0), Policy(jitter_factor=0, initial_backoff=5, multiply_factor=2)]
        releases = [[waits(respond(Throttle(policy), *[503] * count)) for count in range(1, 9)] for policy in policies]
        expected = [[policy.delay(count - 2, 0.0) for count in range(1, 9)] for policy in policies]
        assert releases == [pytest.approx(delays, abs=1e-6) for delays in expected]
        assert releases[0] != releases[1]

    def test_num_errors_to_ignore(self):
        """num_errors_to_ignore: The number of successive failures to ignore before starting to backoff. The suggested
        value is 2, to be conservative and avoid false positives caused by very short server downtime or by the typical
        build/debug/restart server cycle of a web developer."""
        assert Policy().num_errors_to_ignore == 2
        throttle = Throttle(Policy(num_errors_to_ignore=4))
        assert [held(respond(throttle, 503)) for _ in range(5)] == [False] * 4 + [True]
        # A server that is built, debugged and restarted, and fails twice meanwhile each time.
        developed = Throttle()
        for cycle in range(10):
            respond(developed, 503, 503, 200, 200, now=NOW + 60 * cycle)
            assert not held(developed, now=NOW + 60 * cycle)

    def test_initial_backoff(self):
        """initial_backoff_ms: The initial length of the backoff period. Suggested value: 700 ms."""
        assert Policy().initial_backoff * 1_000 == 700
        assert Policy(initial_backoff=7).delay(1, 0.0) == pytest.approx(10 * Policy().delay(1, 0.0))

    def test_multiply_factor(self):
        """multiply_factor: The exponential factor that the backoff period is increased by on each successive failure.
        Suggested value: 1.4."""
        assert Policy().multiply_factor == 1.4
        assert Policy(multiply_factor=3).delay(5, 0.0) == pytest.approx(3 * Policy(multiply_factor=3).delay(4, 0.0))

    def test_jitter_factor(self):
        """jitter_factor: The jitter, or randomization, factor. A factor of 0.1 (10%) will cause the backoff period to
        be chosen as a uniform random distribution between 90-100% of the calculated backoff period. Suggested value:
        0.1."""
        assert Policy().jitter_factor == 0.1
        whole = Policy().delay(5, 0.0)
        parts = [Policy().delay(5, step / 1_000) / whole for step in range(1_000)]
        assert parts == pytest.approx([1 - step / 10_000 for step in range(1_000)])

    def test_maximum_backoff(self):
        """maximum_backoff_ms: The maximum length of the backoff period. Suggested value: 15 minutes."""
        assert Policy().maximum_backoff == 15 * 60
        assert Policy(maximum_backoff=5).delay(100, 0.5) == 5

    def test_which_status_codes_fail(self):
        """Which status codes we consider indicators of a server being possibly under a DDoS attack, or at least
        benefiting from a reduction in aggregate traffic. Status code 503 MUST be interpreted as an indicator, and
        status codes 500 and 509 MAY be interpreted as an indicator, for the following reasons:"""
        for status in range(200, 600):
            assert failures(respond(Throttle(), status)) == (status in {500, 503, 509})

    @pytest.mark.parametrize("permanent", [400, 401, 403, 404, 405, 406, 410, 414, 415, 451, 501, 505])
    def test_500_is_taken_for_temporary(self, permanent):
        """500 is the generic error when no better message is suitable, and as such does not necessarily indicate a
        temporary state, but other status codes cover most of the permanent error states so it.s fairly reasonable to
        consider this a temporary error."""
        assert held(respond(Throttle(), 500, 500, 500))
        assert not held(respond(Throttle(), permanent, permanent, permanent))
        assert not held(respond(Throttle(Policy(failure_statuses={503})), 500, 500, 500))

    def test_503_is_temporary(self):
        """503 is explicitly documented as a temporary state where the server is either overloaded or down for
        maintenance."""
        throttle = respond(Throttle(), 503, 503, 503)
        assert held(throttle)
        assert not held(throttle, now=NOW + 1)

    def test_509_might_indicate_an_attack(self):
        """509 is the (non-standard) Bandwidth Limit Exceeded status code, which might indicate DDoS."""
        assert held(respond(Throttle(), 509, 509, 509))
        assert not held(respond(Throttle(Policy(failure_statuses={500, 503})), 509, 509, 509))


class TestAlgorithm:
    def test_two_numbers_for_each_target(self):
        """Details of the algorithm are as follows: For each throttling target, a failure_count and a release_time is
        maintained."""
        throttle = respond(respond(Throttle(PLAIN), 503, 503, 503), 503, url=f"{HOST}/y", Retry_After="9")
        first, second = (throttle.explain(url, now=NOW) for url in (X, f"{HOST}/y"))
        assert (first.failures, first.release) == (3, pytest.approx(NOW + 0.98))
        assert (second.failures, second.release) == (1, NOW + 9)

    def test_the_failure_count(self):
        """failure_count is increased by one for each failure (as defined by the backoff policy) and decreased by one
        (to no less than 0) for each success."""
        throttle, statuses = Throttle(), (503, 500, 200, 509, 503, 200, 404, 429, 200, 200, 200, 503)
        found = [failures(respond(throttle, status)) for status in statuses]
        assert found == [1, 2, 1, 2, 3, 2, 1, 0, 0, 0, 0, 1]

    def test_the_release_time(self):
        """release_time is the earliest absolute time when a request to the throttling target should be allowed. In the
        default state when a throttling target does not have errors, this time is either past or exactly present, but in
        an error state it is a future time."""
        throttle = Throttle(PLAIN)
        assert throttle.explain(X, now=NOW).release == ASAP
        respond(throttle, 503, 200)
        assert throttle.explain(X, now=NOW).release == NOW
        respond(throttle, 503, 503, 503)
        release = throttle.explain(X, now=NOW).release
        assert release > NOW
        assert held(throttle, now=release - 0.001)
        assert not held(throttle, now=release)

    @pytest.mark.parametrize("ignored", [0, 1, 5])
    def test_the_effective_failure_count(self, ignored):
        """hen a response is received, and failure_count has been established by either incrementing it or decrementing
        it if greater than zero, an effective failure count is calculated: effective_failure_count = failure_count -
        num_errors_to_ignore"""
        policy = Policy(num_errors_to_ignore=ignored, jitter_factor=0)
        throttle = Throttle(policy)
        for count in range(1, 12):
            assert waits(respond(throttle, 503)) == pytest.approx(policy.delay(count - ignored, 0.0), abs=1e-6)

    def test_otherwise(self):
        """Otherwise, release_time is calculated in steps as follows:"""
        throttle = respond(Throttle(PLAIN), 503, 503)
        assert throttle.explain(X, now=NOW).release == NOW
        assert waits(respond(throttle, 503)) == pytest.approx(0.98)
        respond(throttle, *[503] * 5)
        # A success finds an effective count above 0 too, and makes no delay of it.
        assert waits(respond(throttle, 200, now=NOW + 100), now=NOW + 100) == 0

    @pytest.mark.parametrize(("effective", "milliseconds"), [(1, 980), (2, 1372), (3, 1920.8), (10, 20_247.82)])
    def test_step_a(self, effective, milliseconds):
        """a) delay = initial_backoff_ms*multiply_factor^effective_failure_count"""
        assert Policy().delay(effective, 0.0) * 1_000 == pytest.approx(milliseconds, rel=1e-5)

    def test_step_b(self):
        """b) delay -= rand[0,1) * jitter_factor * delay"""
        assert Policy().delay(1, 0.25) == pytest.approx(0.98 - 0.25 * 0.1 * 0.98)
        throttle = Throttle(draw=lambda: 0.5)
        assert waits(respond(throttle, 503, 503, 503)) == pytest.approx(0.931)

    def test_step_c(self):
        """c) delay = min(delay, maximum_backoff_ms)"""
        # The jitter has been taken off before: it does not show in a period that is cut.
        assert {Policy().delay(30, draw) for draw in (0.0, 0.5, 0.99)} == {900.0}

    def test_step_d(self):
        """d) release_time = max(now + delay, release_time)"""
        throttle = respond(Throttle(PLAIN), *[503] * 10)
        release = throttle.release_time(X, now=NOW)
        respond(throttle, *[200] * 8)
        respond(throttle, 503, now=NOW + 1)
        assert throttle.release_time(X, now=NOW) == release
        respond(throttle, *[503] * 9, now=NOW + 1)
        assert throttle.release_time(X, now=NOW) > release

    def test_the_special_case(self):
        """A special case makes delay == 0 for effective_failure_count."""
        assert [Policy().delay(effective, 0.0) for effective in (-2, -1, 0)] == [0.0] * 3
        assert Policy().delay(1, 0.0) > 0
        assert waits(respond(Throttle(), 503, 503)) == 0

    def test_the_release_is_never_set_earlier(self):
        """Additional logic ensures that release_time is never set to a time earlier than its previous value. This is
        done to never override a release_time set using the Retry-After header."""
        throttle = respond(Throttle(PLAIN), 200, Retry_After="60")
        for now, status in ((1, 503), (2, 503), (3, 503), (4, 200), (5, 404)):
            respond(throttle, status, now=NOW + now)
            respond(throttle, status, now=NOW + now, Retry_After="2")
            assert throttle.release_time(X, now=NOW + now) == NOW + 60


class TestSecurity:
    def test_the_worst_effect_is_a_held_target(self):
        """Security should not be impacted by this mechanism. The worst an attacker could do in a hypothetical attack on
        the mechanism would be to cause it to falsely believe that a web server was under DDoS attack and requests to it
        should be throttled, effectively blocking the user or e.g. a JavaScript client from communicating with the
        server."""
        forged = respond(Throttle(), *[503] * 20, Retry_After="86400", DDoS_Bucket_With="/")
        assert held(forged)
        others = (
            "http://example.com/x",
            "http://www.example.com:8080/x",
            "https://www.example.com/x",
            "http://a.example/",
        )
        assert [held(forged, url) for url in others] == [False] * 4

    def test_only_the_server_s_own_responses_hold_it(self):
        """To fool the mechanism in this way, the attacker would need to be able to modify HTTP responses coming from
        the web server. In order to do so, the attacker would already need to have a means of modifying the web server's
        HTTP responses, and would therefore even without the anti-DDoS mechanism in place be able to block users or
        other clients from communicating with the server."""
        throttle, chance = Throttle(), random.Random(7)
        origins = ["http://attacker.example", "https://www.example.com", f"{HOST}:81", "http://example.com"]
        paths = ["/x", "/", f"/{HOST}/x", "/x/../x"]
        values = [HOST, X, "/", "/x", "//www.example.com/x", "www.example.com"]
        for _ in range(3_000):
            url = chance.choice(origins) + chance.choice(paths)
            fields = {"DDoS_Bucket_With": chance.choice(values), "Host": "www.example.com", "Location": X}
            fields["Retry_After"] = chance.choice(["60", "999999"])
            respond(throttle, chance.choice([200, 301, 429, 500, 503]), url=url, **fields)
        assert all(held(throttle, f"{origin}/x") for origin in origins)
        assert [held(throttle, url) for url in (X, f"{HOST}/")] == [False, False]
        assert held(respond(throttle, 200, Retry_After="60"))
