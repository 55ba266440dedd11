import math
from dataclasses import replace

import pytest

from headgate.errors import ConfigurationError
from headgate.release import ASAP, NEVER
from headgate.throttle import Explanation, Policy, Throttle
from tests.quotes import quotes

NOW = 1_763_683_200.0
X = "http://www.example.com/x"
PLAIN = replace(Policy.draft(), jitter_factor=0)

DRAFT = [
    0, 0, 980, 1372, 1921, 2689, 3765, 5271, 7379, 10331, 14463, 20248, 28347, 39686, 55560, 77784, 108898, 152457,
    213439, 298815, 418341, 585678, 819949, 900000, 900000,
]  # fmt: skip
CHROMIUM = [0, 0, 700, *DRAFT[2:-1]]


def throttled(policy=PLAIN, **settings) -> Throttle:
    return Throttle(policy, draw=lambda: 0.0, **settings)


def fail(throttle, url=X, times=1, *, now=NOW, status=503, headers=(), **more):
    for _ in range(times):
        throttle.response_received(url, status, headers, now=now, **more)


def succeed(throttle, url=X, times=1, *, now=NOW, headers=()):
    fail(throttle, url, times, now=now, status=200, headers=headers)


def failures(throttle, url=X, *, now=NOW):
    return throttle.explain(url, now=now).failures


def waits(throttle, url=X, *, now=NOW):
    """Return the seconds that a request is held: 0.0 if it is free."""
    return max(0.0, throttle.release_time(url, now=now) - now)


class TestBackoff:
    @quotes(
        "anti-ddos-throttling 4",
        "Once a few HTTP response codes in a row for a given throttling target have indicated that the web "
        "server is too busy (e.g. a 503 response), block off an exponentially increasing (with some "
        'randomization) "no contact" period for this throttling target.',
    )
    @quotes(
        "anti-ddos-throttling 5",
        "num_errors_to_ignore: The number of successive failures to ignore before starting to backoff. The "
        "suggested value is 2, to be conservative and avoid false positives caused by very short server "
        "downtime or by the typical build/debug/restart server cycle of a web developer.",
        "hen a response is received, and failure_count has been established by either incrementing it or "
        "decrementing it if greater than zero, an effective failure count is calculated: "
        "effective_failure_count = failure_count - num_errors_to_ignore",
        "Otherwise, release_time is calculated in steps as follows:",
    )
    @pytest.mark.parametrize(
        ("policy", "releases"),
        [
            (PLAIN, DRAFT),
            (replace(Policy.draft(), jitter_factor=0, first_delay_is_initial=True, lower_case_path=True), CHROMIUM),
        ],
    )
    def test_releases_after_25_failures_at_one_instant(self, policy, releases):
        throttle = throttled(policy)
        found = []
        for _ in range(25):
            fail(throttle, now=0.0)
            found.append(round(waits(throttle, now=0.0) * 1_000))
        assert found == releases

    @quotes(
        "anti-ddos-throttling 1",
        "The anti-DDoS mechanism is primarily to make the User-Agent throttle requests based on randomized "
        "exponential backoff when a web server sends status codes that indicate overload.",
    )
    def test_each_failure_uses_one_draw(self):
        draws = iter([0.9, 0.9, 0.5, 0.0])
        throttle = Throttle(Policy.draft(), draw=lambda: next(draws))
        fail(throttle, times=3, now=0.0)
        assert waits(throttle, now=0.0) == pytest.approx(0.98 * 0.95)
        fail(throttle, now=0.0)
        assert waits(throttle, now=0.0) == pytest.approx(1.372)
        with pytest.raises(StopIteration):
            next(draws)

    @quotes(
        "anti-ddos-throttling 4",
        'Disallow further requests made for the throttling target during the "no contact" period.',
    )
    @quotes(
        "anti-ddos-throttling 5",
        "release_time is the earliest absolute time when a request to the throttling target should be "
        "allowed. In the default state when a throttling target does not have errors, this time is either "
        "past or exactly present, but in an error state it is a future time.",
    )
    def test_release_in_the_past_is_asap(self):
        throttle = throttled()
        fail(throttle, times=3, now=0.0)
        release = throttle.release_time(X, now=0.0)
        assert release == pytest.approx(0.98)
        assert throttle.release_time(X, now=math.nextafter(release, 0)) == release
        assert throttle.release_time(X, now=release) == ASAP

    def test_release_time_is_rounded_down(self):
        throttle = throttled(
            replace(Policy.draft(), num_errors_to_ignore=0, jitter_factor=0, initial_backoff=0.1, multiply_factor=1)
        )
        for now in (NOW + step / 7 for step in range(100)):
            throttle.reset()
            fail(throttle, now=now)
            assert 0.0999 < throttle.release_time(X, now=now) - now <= 0.1

    @quotes(
        "anti-ddos-throttling 5",
        "d) release_time = max(now + delay, release_time)",
        "Additional logic ensures that release_time is never set to a time earlier than its previous value. "
        "This is done to never override a release_time set using the Retry-After header.",
    )
    def test_later_failure_never_shortens_the_hold(self):
        draws = iter([0.0, 0.0, 0.0, 0.999])
        throttle = Throttle(replace(Policy.draft(), jitter_factor=1), draw=lambda: next(draws))
        fail(throttle, times=3)
        release = throttle.release_time(X, now=NOW)
        fail(throttle)
        assert throttle.release_time(X, now=NOW) == release

    @quotes(
        "anti-ddos-throttling 5",
        "Status code 503 MUST be interpreted as an indicator, and status codes 500 and 509 MAY be interpreted"
        " as an indicator",
    )
    @quotes(
        "anti-ddos-throttling 5",
        "500 is the generic error when no better message is suitable, and as such does not necessarily "
        "indicate a temporary state, but other status codes cover most of the permanent error states so it.s "
        "fairly reasonable to consider this a temporary error.",
    )
    def test_500_503_and_509_are_failures(self):
        for status in range(200, 600):
            throttle = throttled()
            fail(throttle, status=status)
            assert failures(throttle) == (status in {500, 503, 509})

    def test_url_without_a_target_is_never_held(self):
        throttle = throttled()
        for url in ("ftp://a.example/", "/x", "", "\ud800"):
            fail(throttle, url, 9)
            assert throttle.release_time(url, now=NOW) == ASAP
            assert throttle.explain(url, now=NOW).reason == "no target"
        fail(throttle, times=9)
        assert throttle.release_time("/x", now=NOW) == ASAP
        throttle.malformed_body("/x", 200, now=NOW)
        assert len(throttle) == 1


class TestEntries:
    def test_successes_store_nothing(self):
        throttle = throttled()
        for number in range(5_000):
            url = f"http://{number % 50}.example/{number}"
            assert throttle.release_time(url, now=NOW) == ASAP
            succeed(throttle, url, headers={"Content-Type": "text/html"})
            fail(throttle, url, status=404)
            fail(throttle, url, status=502)
            succeed(
                throttle, url, headers={"Retry-After": "0", "Exponential-Throttling": "no", "DDoS-Bucket-With": "x"}
            )
        assert len(throttle) == 0

    def test_recovered_target_is_kept_while_it_is_held(self):
        throttle = throttled()
        fail(throttle, times=3)
        succeed(throttle, times=9)
        assert (failures(throttle), len(throttle)) == (0, 1)
        assert waits(throttle) == pytest.approx(0.98)
        succeed(throttle, now=NOW + 1)
        assert len(throttle) == 0

    def test_forget_returns_the_number_of_dropped_entries(self):
        throttle = throttled()
        fail(throttle, times=1)
        succeed(throttle, "http://www.example.com/y", headers={"Retry-After": "5"})
        assert throttle.forget(now=NOW + 124.9) == 0
        assert throttle.forget(now=NOW + 125) == 1
        assert throttle.forget(now=NOW + 900) == 1
        assert len(throttle) == 0

    @pytest.mark.parametrize("name", ["max_targets", "max_opt_outs"])
    def test_maximum_of_0_is_refused(self, name):
        with pytest.raises(ConfigurationError, match=f"^{name} must be an integer of at least 1, got 0$"):
            Throttle(**{name: 0})
        assert len(Throttle(**{name: 1})) == 0


class TestRetryAfter:
    @quotes(
        "anti-ddos-throttling 4",
        'The "Retry-After" response header gets slightly different semantics, in that it can now be used for '
        "any status code, not just a 503 status code, e.g. on a 200 success response.",
    )
    def test_retry_after_counts_with_any_status_and_never_shortens(self):
        throttle = throttled()
        for status in (200, 204, 301, 404, 429, 500, 502, 503, 504):
            fail(throttle, f"http://www.example.com/{status}", status=status, headers={"retry-AFTER": "9"})
            assert waits(throttle, f"http://www.example.com/{status}") == 9
        for value in ("5", "0", "-1", "soon", "Sun, 06 Nov 1994 08:49:37 GMT"):
            succeed(throttle, "http://www.example.com/200", headers={"Retry-After": value})
            assert waits(throttle, "http://www.example.com/200") == 9

    def test_latest_of_several_lines_counts(self):
        throttle = throttled()
        succeed(throttle, headers=[("Retry-After", "5"), ("retry-after", "7"), ("Retry-After", "x")])
        assert waits(throttle) == 7

    def test_retry_after_is_unbounded(self):
        throttle = throttled()
        succeed(throttle, headers={"Retry-After": "9" * 400})
        assert throttle.release_time(X, now=NOW) == NEVER
        assert throttle.forget(now=1e300) == 0


class TestOptOut:
    @quotes(
        "anti-ddos-throttling 4",
        "An HTTP response header lets web servers opt out of the anti-DDoS mechanism. The name and value for "
        'this header is "Exponential-Throttling: disable" and its effect is to opt out the host the request '
        "was sent to.",
        "The opt-out must last for the remainder of the browsing session, but multiple opt-outs must be idempotent.",
    )
    def test_opt_out_covers_all_origins_of_a_host_at_once_and_permanently(self):
        throttle = throttled()
        for url in (X, "https://www.example.com/x", "http://www.example.com:8080/x", "http://example.com/x"):
            fail(throttle, url, 5)
        fail(throttle, "http://www.example.com/b/a", 5, headers={"DDoS-Bucket-With": "/b"})
        for _ in range(3):
            fail(throttle, "https://www.example.com:9/", status=503, headers={"exponential-throttling": "disable"})
        for url in (X, "https://www.example.com/x", "http://www.example.com:8080/x", "http://www.example.com/b/c"):
            assert throttle.release_time(url, now=NOW) == ASAP
            fail(throttle, url, 20)
            assert throttle.release_time(url, now=NOW) == ASAP
            found = throttle.explain(url, now=NOW)
            assert (found.failures, found.backoff, found.reason) == (0, ASAP, "opted out")
        assert waits(throttle, "http://example.com/x") > 0
        throttle.reset()
        fail(throttle, times=20)
        assert (len(throttle), throttle.release_time(X, now=NOW)) == (0, ASAP)
        throttle.malformed_body(X, 200, now=NOW)
        assert len(throttle) == 0

    def test_opt_out_keeps_retry_after(self):
        throttle = throttled()
        succeed(throttle, headers={"Retry-After": "60"})
        succeed(throttle, headers={"Exponential-Throttling": "disable"})
        assert waits(throttle) == 60
        succeed(throttle, "http://www.example.com/y", headers={"Retry-After": "9"})
        found = throttle.explain("http://www.example.com/y", now=NOW)
        assert (found.release, found.held, found.reason) == (NOW + 9, True, "retry-after")

    def test_oldest_opt_out_is_evicted(self):
        throttle = throttled(max_opt_outs=2)
        hosts = ["a.example", "b.example", "a.example", "c.example"]
        for host in hosts:
            succeed(throttle, f"http://{host}/", headers={"Exponential-Throttling": "disable"})
        assert throttle.opt_outs_evicted == 1
        for host, is_held in (("a.example", True), ("b.example", False), ("c.example", False)):
            fail(throttle, f"http://{host}/", 3)
            assert (waits(throttle, f"http://{host}/") > 0) is is_held


class TestBuckets:
    @quotes(
        "anti-ddos-throttling 4",
        "An HTTP response header is provided that lets the web server indicate how to bucket the current "
        "throttling target in the anti-DDoS mechanism. By default, the mechanism observes HTTP response codes"
        " on a per throttling target basis, i.e. by looking at the URL being requested, minus the query "
        "parameters.",
        "This header could be used by the web server to state that all URLs on the server starting with a "
        "given path (the current response being a match for this path) should be observed and blocked "
        "together as a single throttling target.",
    )
    def test_declaring_response_counts_once_in_the_bucket(self):
        throttle = throttled()
        fail(throttle, "http://www.example.com/m/a", 4)
        fail(throttle, "http://www.example.com/m/b")
        fail(throttle, "http://www.example.com/m/b", headers={"DDoS-Bucket-With": "/m"})
        found = throttle.explain("http://www.example.com/m/c?d", now=NOW)
        assert (found.target, found.bucket, found.failures) == ("http://www.example.com/m*", "/m", 5)
        assert waits(throttle, "http://www.example.com/m/c") == pytest.approx(1.9208)
        assert len(throttle) == 1

    @pytest.mark.parametrize("value", ["other", "/other", "", "m", "/m/", "/m/ab", "/M", "/m, /m", "//", "*", "/m?"])
    def test_bucket_path_that_does_not_match_is_ignored(self, value):
        throttle = throttled()
        fail(throttle, "http://www.example.com/m", 3, headers={"DDoS-Bucket-With": value})
        assert throttle.explain("http://www.example.com/m", now=NOW).bucket is None
        assert waits(throttle, "http://www.example.com/m") > 0

    def test_bucket_path_is_in_lower_case_if_the_policy_says_so(self):
        throttle = throttled(Policy.chromium())
        fail(throttle, "http://www.example.com/M/a", 3, headers={"DDoS-Bucket-With": "/M"})
        assert throttle.explain("http://www.example.com/m/B", now=NOW).target == "http://www.example.com/m*"

    @quotes(
        "anti-ddos-throttling 4",
        "The header need only be set on responses that may be considered an indication of a DDoS attack, e.g."
        " 500, 503 and 509 responses.",
    )
    def test_bucket_is_kept_after_successes(self):
        throttle = throttled()
        fail(throttle, "http://www.example.com/m/a", 2, headers={"DDoS-Bucket-With": "/m"})
        succeed(throttle, "http://www.example.com/m/b", 5)
        found = throttle.explain("http://www.example.com/m/c", now=NOW + 119)
        assert (found.bucket, found.failures) == ("/m", 0)
        assert throttle.explain("http://www.example.com/m/c", now=NOW + 120).bucket is None

    def test_overlong_bucket_path_is_ignored(self):
        throttle, start = throttled(), "/" + "l" * 899
        url = f"http://www.example.com{start}/{'l' * 1_000}"
        fail(throttle, url, 3, headers=[("DDoS-Bucket-With", start + "/"), ("DDoS-Bucket-With", start)])
        assert throttle.explain(url, now=NOW).bucket == start
        assert throttle.explain(url + "x", now=NOW).held

    def test_response_declares_at_most_four_buckets(self):
        # Each visits all targets of the origin: with many, one response could stop a client for seconds.
        throttle = throttled()
        paths = ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e", "/"]
        fail(throttle, "http://a.example/a/b/c/d/e/f", headers=[("DDoS-Bucket-With", path) for path in paths])
        found = [throttle.explain("http://a.example" + path, now=NOW).bucket for path in paths]
        assert found == ["/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d", None]


class TestExceptions:
    @quotes(
        "anti-ddos-throttling 4",
        "Requests are not blocked if they occur in the first 3.5 seconds after an explicit user gesture, i.e."
        " clicking with the mouse or typing on the keyboard and thereby causing input to a web page.",
        "In a DDoS situation, this will tend to let some malicious requests through, but this should be worth"
        " it to favor actual user actions.",
    )
    def test_user_gesture_permits_everything_for_3_5_seconds(self):
        throttle = throttled()
        for url in (X, "http://other.example/"):
            fail(throttle, url, 20, headers={"Retry-After": "3600"})
        throttle.user_gesture(now=NOW + 10)
        throttle.user_gesture(now=NOW + 9)
        for url in (X, "http://other.example/"):
            assert throttle.release_time(url, now=NOW + 13.49) == ASAP
            assert waits(throttle, url, now=NOW + 13.5) == 3586.5
            found = throttle.explain(url, now=NOW + 13.49)
            assert (found.held, found.reason, found.release) == (False, "user gesture", NOW + 3600)
            assert throttle.explain(url, now=NOW + 13.5).held

    def test_interactive_permits_one_request_only(self):
        throttle = throttled()
        fail(throttle, times=20, headers={"Retry-After": "3600"})
        assert throttle.release_time(X, now=NOW, interactive=True) == ASAP
        assert waits(throttle) == 3600

    @quotes("anti-ddos-throttling 4", "Requests to localhost are never blocked.")
    @pytest.mark.parametrize(
        "host",
        ["localhost", "LOCALHOST:8080", "a.localhost", "localhost.", "127.0.0.1", "127.9.9.9:1", "[::1]", "0x7f.1"],
    )
    def test_localhost_is_held_only_with_hold_localhost(self, host):
        url = f"http://{host}/x"
        for throttle, is_held in ((throttled(), False), (throttled(hold_localhost=True), True)):
            fail(throttle, url, 20, headers={"Retry-After": "60", "DDoS-Bucket-With": "/"})
            throttle.malformed_body(url, 200, now=NOW)
            assert (waits(throttle, url) > 0) is is_held
            found = throttle.explain(url, now=NOW)
            assert (found.held, found.reason == "localhost", len(throttle)) == (is_held, not is_held, int(is_held))

    @pytest.mark.parametrize("host", ["localhost.example", "notlocalhost", "128.0.0.1", "[::2]", "10.0.0.1"])
    def test_hosts_similar_to_localhost_are_held(self, host):
        throttle = throttled()
        fail(throttle, f"http://{host}/", 3)
        assert waits(throttle, f"http://{host}/") > 0

    @pytest.mark.parametrize(("back", "held"), [(3.25, False), (3.5, True), (3_600.0, True)])
    def test_gesture_counts_for_3_5_seconds_before_it_too(self, back, held):
        throttle = throttled()
        succeed(throttle, now=NOW - 10_000, headers={"Retry-After": "100000"})
        throttle.user_gesture(now=NOW)
        assert (throttle.release_time(X, now=NOW - back) > NOW - back) is held
        assert throttle.explain(X, now=NOW - back).held is held

    @pytest.mark.parametrize(("back", "free_until"), [(1.0, 3.5), (3.5, 0.0), (3_600.0, -3_596.5)])
    def test_next_gesture_replaces_one_in_the_future(self, back, free_until):
        throttle = throttled()
        succeed(throttle, now=NOW - 10_000, headers={"Retry-After": "100000"})
        throttle.user_gesture(now=NOW)
        throttle.user_gesture(now=NOW - back)
        assert not throttle.explain(X, now=NOW - back).held
        assert not throttle.explain(X, now=NOW + free_until - 0.25).held
        assert throttle.explain(X, now=NOW + free_until).held


class TestMalformedBody:
    def test_malformed_bodies_back_off(self):
        throttle = throttled()
        for releases in (0, 0, 0.98, 1.372):
            succeed(throttle)
            throttle.malformed_body(X, 200, now=NOW)
            assert waits(throttle) == pytest.approx(releases)

    @pytest.mark.parametrize("status", [500, 502, 503, 504, 509])
    def test_malformed_body_of_a_failure_changes_nothing(self, status):
        throttle = throttled()
        fail(throttle, times=2)
        throttle.malformed_body(X, status, now=NOW)
        assert failures(throttle) == 2


class TestParallelFailures:
    def test_parallel_failures_count_once(self):
        throttle = throttled()
        for step in range(3):
            fail(throttle, now=NOW + step, sent=NOW + step)
            fail(throttle, times=9, now=NOW + step + 0.5, sent=NOW + step - 0.1)
        assert failures(throttle) == 3

    @pytest.mark.parametrize("sent", [NOW, None])
    def test_failures_that_are_not_parallel_count(self, sent):
        throttle = throttled()
        fail(throttle, times=5, now=NOW, sent=sent)
        assert failures(throttle) == 5

    def test_retry_after_of_a_parallel_failure_is_obeyed(self):
        throttle = throttled()
        fail(throttle)
        fail(throttle, sent=NOW - 1, headers={"Retry-After": "60"})
        assert (failures(throttle), waits(throttle)) == (1, 60)


class TestRetryBudget:
    def test_retries_are_unlimited_without_a_budget(self):
        assert throttled().retries_left(X) == 10
        throttle = throttled(retry_budget=None)
        assert all(throttle.spend_retry(X) for _ in range(1_000))
        assert throttle.retries_left(X) == math.inf

    def test_origin_gets_the_budget_and_a_tenth_of_a_retry_per_success(self):
        throttle = throttled(retry_budget=2)
        assert [throttle.spend_retry(url) for url in (X, "http://www.example.com/y", X)] == [True, True, False]
        assert throttle.spend_retry("http://www.example.com:8080/x")
        for status in (*[200] * 9, 429, 500, 502, 503, 504):
            fail(throttle, status=status)
        assert throttle.retries_left("HTTP://www.example.com/") == 0
        fail(throttle, status=404)
        assert throttle.retries_left(X) == 1
        assert throttle.spend_retry(X)

    def test_a_burst_takes_one_retry(self):
        throttle = throttled(retry_budget=2)
        taken = [throttle.spend_retry(X, now=now, sent=sent) for now, sent in ((5, 1), (5, 2), (6, 4), (7, 5), (8, 6))]
        assert taken == [True, True, True, True, True]
        assert throttle.retries_left(X) == 0
        assert [throttle.spend_retry(X, now=9, sent=sent) for sent in (6, 7)] == [True, False]

    def test_localhost_has_a_budget(self):
        throttle = throttled(retry_budget=1)
        assert [throttle.spend_retry("http://localhost/") for _ in range(2)] == [True, False]
        succeed(throttle, "http://localhost/", 10)
        assert throttle.spend_retry("http://localhost/")

    def test_invalid_budget_is_refused(self):
        for budget in (-1, 1.5, "1", True):
            with pytest.raises(ConfigurationError, match=f"^retry_budget must be .*, got {budget!r}$"):
                Throttle(retry_budget=budget)

    def test_oldest_budget_is_dropped_and_reset_fills_all(self):
        throttle = throttled(retry_budget=1, max_targets=2)
        urls = [f"http://{name}.example/" for name in "abc"]
        assert all(map(throttle.spend_retry, urls))
        assert [throttle.retries_left(url) for url in urls] == [1, 0, 0]
        throttle.reset()
        assert [throttle.retries_left(url) for url in urls] == [1, 1, 1]

    def test_url_without_a_target_has_no_budget(self):
        assert throttled(retry_budget=0).spend_retry("/x")
        assert throttled(retry_budget=0).retries_left("/x") == math.inf


class TestExplain:
    def test_explanation_has_target_failures_and_horizons(self):
        throttle = throttled()
        fail(throttle, X + "?q", 3)
        found = throttle.explain(X + "?other", now=NOW)
        assert (found.url, found.now, found.target, found.bucket) == (X + "?other", NOW, X, None)
        assert (found.failures, found.retry_after, found.held, found.reason) == (3, ASAP, True, "backoff")
        assert found.release == found.backoff == throttle.release_time(X, now=NOW)

    def test_retry_after_is_named_if_both_horizons_are_equal(self):
        throttle = throttled(replace(Policy.draft(), num_errors_to_ignore=0, initial_backoff=5, multiply_factor=1))
        fail(throttle, headers={"Retry-After": "5"})
        found = throttle.explain(X, now=NOW)
        assert found.backoff == found.retry_after == NOW + 5
        assert found.reason == "retry-after"

    def test_explanation_of_a_past_hold_is_free(self):
        throttle = throttled()
        fail(throttle, times=3)
        found = throttle.explain(X, now=NOW + 1)
        assert (found.release, found.held, found.reason) == (pytest.approx(NOW + 0.98), False, "free")


class TestClockSetBack:
    def test_backoff_keeps_its_duration(self):
        throttle = throttled()
        fail(throttle, times=3)
        assert waits(throttle, now=NOW - 3_600) == pytest.approx(0.98)
        assert waits(throttle, now=NOW - 3_599) == 0.0
        assert waits(throttle, now=NOW) == 0.0

    @pytest.mark.parametrize("value", ["600", "Fri, 21 Nov 2025 00:10:00 GMT"])
    def test_retry_after_keeps_its_duration(self, value):
        throttle = throttled()
        succeed(throttle, headers={"Retry-After": value})
        assert waits(throttle) == 600.0
        assert waits(throttle, now=NOW - 3_600) == 600.0
        assert waits(throttle, now=NOW - 3_001) == 1.0
        assert waits(throttle, now=NOW - 3_000) == 0.0

    def test_endless_retry_after_stays_endless(self):
        throttle = throttled()
        succeed(throttle, headers={"Retry-After": "9" * 400})
        assert throttle.release_time(X, now=NOW - 3_600) == NEVER

    def test_members_of_a_bucket_keep_their_holds(self):
        throttle = throttled()
        fail(throttle, "http://a.example/m/a", 3)
        fail(throttle, "http://a.example/m/b", now=NOW - 3_600, headers={"DDoS-Bucket-With": "/m"})
        assert waits(throttle, "http://a.example/m/c", now=NOW - 3_600) == pytest.approx(1.372)

    def test_target_is_forgotten_after_its_lifetime(self):
        throttle = throttled()
        fail(throttle, times=3)
        assert throttle.forget(now=NOW - 3_600) == 0
        assert throttle.forget(now=NOW - 3_600 + 901) == 1

    def test_the_last_failure_follows_the_clock(self):
        throttle = throttled()
        fail(throttle, sent=NOW - 1)
        fail(throttle, now=NOW - 3_600, sent=NOW - 3_600 - 1)
        assert failures(throttle, now=NOW - 3_600) == 1
        fail(throttle, now=NOW - 3_590, sent=NOW - 3_595)
        assert failures(throttle, now=NOW - 3_590) == 2

    def test_released_target_stays_released(self):
        throttle = throttled()
        fail(throttle, times=3)
        assert waits(throttle, now=NOW + 10) == 0.0
        assert waits(throttle, now=NOW + 9) == 0.0


URL_WITH_QUERY = "http://a/x?y"


def test_explanation_is_free_by_default():
    found = Explanation(url=URL_WITH_QUERY, now=5.0, target="http://a/x")
    assert (found.failures, found.release, found.held, found.reason) == (0, ASAP, False, "free")


def test_release_of_an_explanation_is_the_later_horizon():
    assert Explanation(url=URL_WITH_QUERY, now=5.0, backoff=7.0, retry_after=6.0).release == 7.0
    assert Explanation(url=URL_WITH_QUERY, now=5.0, backoff=7.0, retry_after=8.0).release == 8.0


TEXTS = [
    ({}, "http://a/x: free, not held, after no failures"),
    ({"failures": 1}, "http://a/x: free, not held, after one failure"),
    (
        {"failures": 3, "backoff": 5.98, "held": True, "reason": "backoff"},
        "http://a/x: held, for 0.980 s more: the backoff after 3 failures",
    ),
    (
        {"target": "http://a/*", "retry_after": 125.0, "held": True, "reason": "retry-after"},
        "http://a/*: held, for 120.000 s more: its Retry-After",
    ),
    (
        {"retry_after": NEVER, "held": True, "reason": "retry-after"},
        "http://a/x: held, for good: its Retry-After",
    ),
    (
        {"retry_after": 6.0, "held": True, "reason": "shared"},
        "http://a/x: held, for 1.000 s more: a hold that another process shares",
    ),
    ({"reason": "opted out"}, "http://a/x: free, its host opted out of throttling"),
    ({"reason": "localhost"}, "http://a/x: free, this machine is never held"),
    (
        {"backoff": 6.0, "reason": "user gesture"},
        "http://a/x: free, a user has just clicked or typed; otherwise held for 1.000 s more",
    ),
    ({"target": None, "reason": "no target"}, "http://a/x?y: free, not an http or https URL"),
]


def test_explanation_as_text():
    for fields, said in TEXTS:
        assert str(Explanation(**{"url": URL_WITH_QUERY, "now": 5.0, "target": "http://a/x"} | fields)) == said
