"""The default policy, for programs: what holds the whole origin, and what holds less."""

import pytest

from headgate.errors import ConfigurationError
from headgate.release import ASAP
from headgate.throttle import Policy, Throttle

NOW = 1_763_683_200.0
ORIGIN = "https://www.example.com"
A, B, C = (f"{ORIGIN}/{name}" for name in "abc")


def throttled(**options) -> Throttle:
    return Throttle(Policy(jitter_factor=0), draw=lambda: 0.0, **options)


def respond(throttle, url, status, *, now=NOW, times=1, method="GET", sent=None, **fields):
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    for _ in range(times):
        throttle.response_received(url, status, headers, now=now, method=method, sent=sent)


def waits(throttle, url, *, now=NOW):
    return round(max(0.0, throttle.release_time(url, now=now) - now), 6)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_failures_hold_the_origin(status):
    throttle = throttled()
    for number in range(3):
        respond(throttle, f"{ORIGIN}/{number}", status)
    assert waits(throttle, A) == 0.98
    assert waits(throttle, "https://other.example.com/") == waits(throttle, "http://www.example.com/") == 0
    found = throttle.explain(A, now=NOW)
    assert (found.target, found.failures, found.reason, found.held) == (ORIGIN, 3, "backoff", True)


@pytest.mark.parametrize("status", [500, 509])
def test_500_and_509_hold_the_path(status):
    throttle = throttled()
    respond(throttle, A, status, times=3)
    assert (waits(throttle, A), waits(throttle, B)) == (0.98, 0)
    respond(throttle, A, status, retry_after="60")
    assert (waits(throttle, A), waits(throttle, B)) == (60, 60)


def test_requests_without_a_response_hold_the_origin():
    throttle = throttled()
    for step in range(3):
        for _ in range(2):  # at the same time
            throttle.request_lost(f"{ORIGIN}/{step}", now=NOW + step, sent=NOW + step - 0.5)
    assert waits(throttle, A, now=NOW + 2) == 0.98
    draft = Throttle(Policy.draft())
    for url in (A, "http://127.0.0.1/", "no URL"):
        for _ in range(9):
            draft.request_lost(url, now=NOW)
            throttle.request_lost("http://127.0.0.1/", now=NOW)
    assert (len(draft), waits(throttle, "http://127.0.0.1/")) == (0, 0)


def test_successes_lower_both_counts():
    throttle = throttled()
    respond(throttle, A, 500, times=2)
    respond(throttle, B, 503, times=2)
    respond(throttle, A, 200, times=3)
    assert (len(throttle), bool(throttle)) == (0, True)


def test_a_bucket_is_held_in_place_of_the_origin():
    throttle = throttled()
    respond(throttle, f"{ORIGIN}/api/x", 503, times=3, ddos_bucket_with="/api")
    respond(throttle, f"{ORIGIN}/api/x", 200, retry_after="60")
    assert waits(throttle, f"{ORIGIN}/api/y") == 60
    assert waits(throttle, A) == 0
    respond(throttle, A, 200, retry_after="90")
    assert waits(throttle, f"{ORIGIN}/api/y") == 90


def test_an_opt_out_ends_failures_of_the_origin_only():
    throttle = throttled()
    respond(throttle, A, 503, times=5)
    respond(throttle, A, 503, exponential_throttling="disable")
    assert waits(throttle, B) == 0
    respond(throttle, A, 503, retry_after="60", times=5)
    assert waits(throttle, B) == 60


def test_retry_after_holds_the_origin_for_a_day_at_most():
    throttle = throttled()
    respond(throttle, A, 200, retry_after="99999999999")
    assert waits(throttle, B) == 86_400
    with pytest.raises(ConfigurationError, match="max_retry_after must be a non-negative number of seconds, got -1"):
        Policy(max_retry_after=-1)
    with pytest.raises(ConfigurationError, match="scope must be 'origin' or 'path', got 'host'"):
        Policy(scope="host")


DELAYED = [
    (307, "GET", "/b", [0, 30, 0]),
    (302, "GET", f"{ORIGIN}/b?x", [0, 30, 0]),
    (202, "POST", "/b", [0, 30, 0]),
    (202, "POST", "", [30, 0, 0]),
    (202, "GET", "/b", [30, 30, 30]),
    (201, "POST", "/b", [30, 30, 30]),
    (304, "GET", "/b", [30, 30, 30]),
    (307, "GET", "https://other.example/b", [30, 0, 0]),
    (307, "GET", "https://[", [30, 0, 0]),
]


@pytest.mark.parametrize(("status", "method", "location", "held"), DELAYED)
def test_retry_after_of_redirects_and_accepted_requests(status, method, location, held):
    throttle = throttled()
    respond(throttle, A, status, method=method, location=location, retry_after="30")
    assert [waits(throttle, url) for url in (A, B, C)] == held
    assert waits(throttle, "https://other.example/b") == 0


def test_nothing_remaining_holds_the_origin_until_the_reset():
    throttle = throttled()
    respond(throttle, A, 200, ratelimit='"a";r=1;t=50')
    assert waits(throttle, A) == 0
    respond(throttle, A, 200, ratelimit='"a";r=0;t=10, "b";r=5;t=90')
    found = throttle.explain(B, now=NOW)
    assert (found.release, found.reason, found.held) == (NOW + 10, "rate-limit", True)
    assert str(found) == f"{ORIGIN}: held, for 10.000 s more: nothing remains of its rate limit"
    respond(throttle, A, 200, x_ratelimit_remaining="0", x_ratelimit_reset="20")
    assert waits(throttle, B) == 20
    respond(throttle, A, 200, retry_after="60")
    assert throttle.explain(B, now=NOW).reason == "retry-after"
    draft = Throttle(Policy.draft())
    respond(draft, A, 200, ratelimit='"a";r=0;t=10')
    assert waits(draft, A) == 0


def test_clear_drops_all_of_one_origin():
    throttle = throttled(retry_budget=1)
    respond(throttle, A, 500, times=3, retry_after="60")
    respond(throttle, f"{ORIGIN}/m/a", 503, retry_after="60", ddos_bucket_with="/m")
    respond(throttle, "https://other.example/", 200, retry_after="60")
    assert throttle.spend_retry(A)
    throttle.clear(f"{ORIGIN}/any")
    throttle.clear("no URL")
    assert [waits(throttle, url) for url in (A, B, f"{ORIGIN}/m/a", "https://other.example/")] == [0, 0, 0, 60]
    assert (len(throttle), throttle.retries_left(A)) == (1, 1)
    assert throttle.forget(now=NOW + 200) == 1
    assert throttle.release_time(A, now=NOW) == ASAP
