"""anti-ddos-throttling.txt, sentence by sentence: each docstring quotes the sentences its test proves."""

import random
from itertools import pairwise

import pytest

from headgate.release import ASAP
from headgate.throttle import Policy, Throttle

NOW = 1_763_683_200.0
HOST = "http://www.example.com"
X = f"{HOST}/x"
PLAIN = Policy(jitter_factor=0)


def respond(throttle, *statuses, url=X, now=NOW, **headers):
    """Let responses with these statuses come in; `DDoS_Bucket_With="/a"` is a field of each."""
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


class TestComponents:
    def test_observes_per_target(self):
        """It observes HTTP response codes on a per throttling target basis."""
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
        time"""
        agents = [Throttle(draw=random.Random(seed).random) for seed in range(100)]
        releases = {respond(agent, 503, 503, 503).release_time(X, now=NOW) for agent in agents}
        assert len(releases) == 100


class TestBehaviours:
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
        """the client by default pings the server very frequently, and the server then controls the actual rate of pings
        by using this header"""
        throttle, pings = Throttle(), []
        for second in range(100):
            if not held(throttle, now=NOW + second):
                pings.append(second)
                respond(throttle, 200, now=NOW + second, Retry_After="30")
        assert pings == [0, 30, 60, 90]

    def test_a_header_says_how_to_bucket(self):
        """An HTTP response header is provided that lets the web server indicate how to bucket the current throttling
        target in the anti-DDoS mechanism. By default, the mechanism observes HTTP response codes on a per throttling
        target basis, i.e. by looking at the URL being requested, minus the query parameters."""
        throttle = respond(Throttle(), 503, 503, url=f"{HOST}/a/1")
        assert throttle.explain(f"{HOST}/a/1", now=NOW).target == f"{HOST}/a/1"
        respond(throttle, 503, url=f"{HOST}/a/1", DDoS_Bucket_With="/a")
        assert throttle.explain(f"{HOST}/a/1", now=NOW).target == f"{HOST}/a*"

    def test_all_urls_below_the_path_are_one_target(self):
        """state that all URLs on the server starting with a given path (the current response being a match for this
        path) should be observed and blocked together as a single throttling target."""
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
        """a malicious DDoS attack could be perpetrated on a web server not using the "DDoS-Bucket-With" header, since
        the malicious attack could craft multiple URLs that each are considered a new throttling target [...] with
        opt-in via the "DDoS-Bucket-With" header, all are mitigated."""

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


class TestPolicy:
    def test_num_errors_to_ignore(self):
        """num_errors_to_ignore: The number of successive failures to ignore before starting to backoff. The suggested
        value is 2"""
        assert Policy().num_errors_to_ignore == 2
        throttle = Throttle(Policy(num_errors_to_ignore=4))
        assert [held(respond(throttle, 503)) for _ in range(5)] == [False] * 4 + [True]

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
        status codes 500 and 509 MAY be interpreted as an indicator"""
        for status in range(200, 600):
            assert failures(respond(Throttle(), status)) == (status in {500, 503, 509})


class TestAlgorithm:
    def test_two_numbers_for_each_target(self):
        """For each throttling target, a failure_count and a release_time is maintained."""
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
        """When a response is received, and failure_count has been established by either incrementing it or decrementing
        it if greater than zero, an effective failure count is calculated: effective_failure_count = failure_count -
        num_errors_to_ignore"""
        policy = Policy(num_errors_to_ignore=ignored, jitter_factor=0)
        throttle = Throttle(policy)
        for count in range(1, 12):
            assert waits(respond(throttle, 503)) == pytest.approx(policy.delay(count - ignored, 0.0), abs=1e-6)

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
