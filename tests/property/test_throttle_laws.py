"""The throttle equals a slow model of the document, and obeys laws for all sequences of responses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.release import ASAP
from headgate.throttle import Policy, Throttle
from headgate.throttle.target import parse_target, path_matches
from tests.quotes import quotes

HOSTS = ["http://a.example", "http://a.example:81", "https://a.example", "http://b.example"]
PATHS = ["/", "/m", "/m/", "/m/a", "/m/a/b", "/m/ab", "/n"]
URLS = [host + path for host in HOSTS for path in PATHS]
STATUSES = st.sampled_from([503, 503, 503, 500, 509, 200, 200, 404, 429, 502, 504])
POLICIES = st.sampled_from(
    [
        Policy.draft(),
        Policy.chromium(),
        replace(Policy.draft(), num_errors_to_ignore=0, maximum_backoff=5, entry_lifetime=7),
    ]
)
SECONDS = st.sampled_from([0.0, 0.0, 0.0, 0.3, 1.0, 2.5, 7.0, 119.5, 900.0]) | st.floats(0, 2_000)
RETRY_AFTER = st.sampled_from([None, None, None, "0", "5", "120", "1000", "-5", "5.5", "soon"])
BUCKETS = st.sampled_from([None, None, None, *PATHS, "/m/a/", "m", ""])
STEPS = st.lists(st.tuples(SECONDS, st.sampled_from(URLS), STATUSES, RETRY_AFTER, BUCKETS), max_size=40)


def headers_of(retry_after, bucket):
    named = {"Retry-After": retry_after, "DDoS-Bucket-With": bucket}
    return {name: value for name, value in named.items() if value is not None}


def below_one(draw):
    return draw(st.floats(0, 1, exclude_max=True))


class Model:
    """The sentences of the document and the design's decisions; nothing is ever dropped."""

    def __init__(self, policy, draw):
        self.policy, self.draw = policy, draw
        self.targets = {}
        self.buckets = {}

    def is_remembered(self, state, now):
        failures, backoff, retry_after = state
        policy = self.policy
        lifetime = max(policy.maximum_backoff, policy.entry_lifetime) if failures else policy.entry_lifetime
        return now - max(backoff, retry_after) < lifetime

    def place(self, url, now):
        target = parse_target(url, lower_case_path=self.policy.lower_case_path)
        live = [
            (len(path), (origin, path))
            for (origin, path), state in self.buckets.items()
            if origin == target.origin and path_matches(path, target.path) and self.is_remembered(state, now)
        ]
        return (self.buckets, max(live)[1]) if live else (self.targets, target.name)

    def state(self, url, now):
        places, name = self.place(url, now)
        state = places.get(name)
        return state if state is not None and self.is_remembered(state, now) else (0, ASAP, ASAP)

    def declare(self, url, path, now):
        target = parse_target(url)
        if not path.startswith("/") or not path_matches(path, target.path):
            return
        known = self.buckets.get((target.origin, path))
        if known is not None and self.is_remembered(known, now):
            return
        inside = [name for name in self.targets if name.startswith(target.origin + "/")]
        inside = [name for name in inside if path_matches(path, parse_target(name).path)]
        states = [self.state(name, now) for name in [*inside, target.origin + path]]
        mine = [state for name, state in zip(inside, states, strict=False) if self.place(name, now)[0] is self.targets]
        chosen = [(0, now, ASAP), *mine, states[-1]]
        for name in inside:
            del self.targets[name]
        self.buckets[target.origin, path] = tuple(map(max, zip(*chosen, strict=True)))

    def response(self, url, status, retry_after, bucket, now):
        if bucket is not None:
            self.declare(url, bucket, now)
        places, name = self.place(url, now)
        failures, backoff, until = self.state(url, now)
        if status in {500, 503, 509}:
            failures += 1
            effective = failures - self.policy.num_errors_to_ignore
            delay = self.policy.delay(effective, self.draw) if effective > 0 else 0.0
            backoff = max(now + delay, backoff)
        elif status not in {502, 504}:
            failures = max(0, failures - 1)
            backoff = max(now, backoff)
        if retry_after is not None and retry_after.isdigit():
            until = max(until, now + int(retry_after))
        if (failures, until) != (0, ASAP) or name in places:
            places[name] = failures, backoff, until


@quotes("anti-ddos-throttling 5", "For each throttling target, a failure_count and a release_time is maintained.")
@quotes(
    "anti-ddos-throttling 5",
    "failure_count is increased by one for each failure (as defined by the backoff policy) and decreased "
    "by one (to no less than 0) for each success.",
)
@given(policy=POLICIES, draw=st.floats(0, 1, exclude_max=True), steps=STEPS)
def test_throttle_equals_the_model_of_the_document(policy, draw, steps):
    throttle, written, now = Throttle(policy, draw=lambda: draw), Model(policy, draw), 1_000.0
    for wait, url, status, retry_after, bucket in steps:
        now += wait
        throttle.response_received(url, status, headers_of(retry_after, bucket), now=now)
        written.response(url, status, retry_after, bucket, now)
        for asked in URLS:
            failures, backoff, until = written.state(asked, now)
            found = throttle.explain(asked, now=now)
            assert found.failures == failures
            assert max(found.release, now) == pytest.approx(max(backoff, until, now), abs=1e-9)
            assert found.held is (throttle.release_time(asked, now=now) > now)


@given(policy=POLICIES, steps=STEPS, data=st.data())
def test_response_never_shortens_a_hold(policy, steps, data):
    throttle, now = Throttle(policy, draw=lambda: below_one(data.draw)), 1_000.0
    for wait, url, status, retry_after, bucket in steps:
        now += wait
        before = [throttle.release_time(asked, now=now) for asked in URLS]
        throttle.response_received(url, status, headers_of(retry_after, bucket), now=now)
        after = [throttle.release_time(asked, now=now) for asked in URLS]
        assert all(then <= later for then, later in zip(before, after, strict=True))


@given(steps=STEPS, forgetting=st.sets(st.integers(0, 39)))
def test_release_time_and_forget_change_no_result(steps, forgetting):
    asked, silent, now = Throttle(Policy.draft(), draw=lambda: 0.5), Throttle(Policy.draft(), draw=lambda: 0.5), 1_000.0
    for number, (wait, url, status, retry_after, bucket) in enumerate(steps):
        now += wait
        for throttle in (asked, silent):
            throttle.response_received(url, status, headers_of(retry_after, bucket), now=now)
        for other in URLS:
            asked.release_time(other, now=now)
            asked.explain(other, now=now)
        if number in forgetting:
            asked.forget(now=now)
    assert [asked.explain(url, now=now) for url in URLS] == [silent.explain(url, now=now) for url in URLS]


@given(values=st.lists(st.tuples(st.sampled_from(URLS), st.integers(0, 10**9)), max_size=9), data=st.data())
def test_lost_repeated_or_reordered_retry_afters_never_shorten_a_hold(values, data):
    def holds(said):
        throttle = Throttle(Policy.draft())
        for url, seconds in said:
            throttle.response_received(url, 200, {"Retry-After": str(seconds)}, now=5.0)
        return [throttle.release_time(url, now=5.0) for url in URLS]

    repeated = data.draw(st.permutations(values + values[: len(values) // 2]))
    assert holds(repeated) == holds(values)
    kept = data.draw(st.lists(st.sampled_from(values), unique=True) if values else st.just([]))
    assert all(some <= every for some, every in zip(holds(kept), holds(values), strict=True))


@given(
    policy=st.builds(
        Policy,
        num_errors_to_ignore=st.integers(0, 5),
        initial_backoff=st.floats(0, 100),
        multiply_factor=st.floats(1, 1e6),
        jitter_factor=st.floats(0, 1),
        maximum_backoff=st.floats(0, 1e6),
        first_delay_is_initial=st.booleans(),
    ),
    effective=st.integers(-5, 10**4),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_delay_grows_with_the_failures_within_the_jitter(policy, effective, draw):
    whole = policy.delay(effective, 0.0)
    delay = policy.delay(effective, draw)
    assert 0 <= delay <= whole <= policy.maximum_backoff
    assert whole <= policy.delay(effective + 1, 0.0)
    assert delay >= whole * (1 - policy.jitter_factor) * (1 - 1e-9)
    assert (whole == 0) or effective > 0


@given(
    most=st.integers(1, 40),
    steps=st.lists(st.tuples(SECONDS, st.integers(0, 60), STATUSES, st.booleans()), max_size=120),
)
def test_entries_are_bounded_and_dropped_holds_counted(most, steps):
    throttle, now, expected = (
        Throttle(replace(Policy.draft(), num_errors_to_ignore=0), draw=lambda: 0.0, max_targets=most),
        0.0,
        0,
    )
    urls = [f"http://h{number % 7}.example/d{number}/x" for number in range(61)]
    for wait, number, status, declares in steps:
        now += wait
        held = {url for url in urls if throttle.release_time(url, now=now) > now}
        headers = {"DDoS-Bucket-With": f"/d{number}"} if declares else {}
        throttle.response_received(urls[number], status, headers, now=now)
        expected += sum(throttle.release_time(url, now=now) <= now for url in held)
        assert len(throttle) <= most
        assert throttle.evicted == expected


CLOCK = st.sampled_from([0.0, 0.3, 1.0, -0.3, -1.0, 900.0, 3_600.0, -3_600.0, 86_400.0]) | st.floats(-1e6, 1e6)
CLOCK_STEPS = st.lists(
    st.tuples(CLOCK, st.sampled_from(URLS), STATUSES, st.sampled_from([None, None, 5, 120, 1000]), BUCKETS), max_size=40
)


@given(policy=POLICIES, steps=CLOCK_STEPS, looks=st.lists(CLOCK, max_size=5))
def test_hold_is_bounded_whatever_the_clock_does(policy, steps, looks):
    throttle, now, longest = Throttle(policy, draw=lambda: 0.0), 1.8e9, 0
    for step, url, status, seconds, bucket in [*steps, *((look, URLS[0], None, None, None) for look in looks)]:
        now += step
        if status is not None:
            longest = max(longest, seconds or 0)
            throttle.response_received(url, status, headers_of(seconds and str(seconds), bucket), now=now)
        for asked in URLS:
            found = throttle.explain(asked, now=now)
            assert found.backoff - now <= policy.maximum_backoff
            assert found.retry_after - now <= longest
            assert throttle.release_time(asked, now=now) - now <= max(policy.maximum_backoff, longest)
