"""A program that waits until the release time of a refused request is not refused again for the same reason."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.agent import Courtesy, RetryLater
from headgate.agent.attempt import Attempt
from headgate.throttle import Policy

URLS = ("https://example.com/a", "https://example.com/b", "https://other.example/")
FIELDS = (
    {},
    {"Retry-After": "7"},
    {"RateLimit": '"default";r=0;t=9'},
    {"RateLimit": '"default";r=2;t=5'},
    {"DDoS-Bucket-With": "/"},
)
EVENTS = st.tuples(
    st.floats(0, 3), st.sampled_from(URLS), st.sampled_from([200, 302, 429, 500, 503, 0]), st.sampled_from(FIELDS)
)


def refused(attempt: Attempt) -> RetryLater | None:
    try:
        assert attempt.wait() is None
    except RetryLater as held:
        return held
    return None


@pytest.mark.parametrize("policy", [Policy(), Policy.draft(), Policy.chromium()], ids=["programs", "draft", "chromium"])
@given(events=st.lists(EVENTS, max_size=25), rate=st.sampled_from([None, "1/s", "3/s burst 2", "7/min burst 3"]))
@example(events=[(0.1, URLS[0], 503, {})] * 9, rate=None)
@example(events=[(0.1, URLS[0], 429, FIELDS[1])] * 3, rate=None)
@example(events=[(0.1, URLS[0], 200, FIELDS[2])] * 3, rate=None)
@example(events=[(0.1, URLS[0], 200, {})] * 3, rate="7/min burst 3")
def test_no_request_is_refused_twice_for_the_same_reason(policy, events, rate):
    now = [1_000_000.0]
    courtesy = Courtesy(clock=lambda: now[0], draw=lambda: 0.0, policy=policy, rate=rate, wait=0)
    for seconds, url, status, fields in events:
        now[0] += seconds
        attempt, refusals = courtesy.attempt("GET", url), []
        while (held := refused(attempt)) is not None:
            assert held.release_time > now[0]
            refusals.append(held.reason)
            assert len(refusals) == len(set(refusals))
            now[0], attempt = held.release_time, courtesy.attempt("GET", url)
        if status:
            attempt.received(status, fields)
        else:
            attempt.lost(OSError(), "unsent")
