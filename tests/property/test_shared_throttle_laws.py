"""Several throttles on one file are one throttle: whichever is told, each answers as one would that was told all."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agent import SharedThrottle
from headgate.agent.sharing.mirror import Mirror
from headgate.throttle import Policy, Throttle

PATHS = ["/", "/m", "/m/a", "/m/" + "l" * 2_000 + "1", "/m/" + "l" * 2_000 + "2"]
URLS = ["http://a.example" + path for path in PATHS] + ["http://a.example:81/m"]
SECONDS = st.sampled_from([0.0, 0.0, 0.0, 0.3, 0.3, 2.5, 119.5, 900.0])
SAID = [
    {"Retry-After": "5"},
    {"Retry-After": "1000"},
    {"DDoS-Bucket-With": "/m"},
    {"DDoS-Bucket-With": "/m/a"},
    {"DDoS-Bucket-With": "/", "Retry-After": "7"},
    {"Exponential-Throttling": "disable"},
]
FIELDS = st.sampled_from([{}] * 14 + SAID)
STATUSES = st.sampled_from([503, 503, 500, 200, 200, 404, 429, 502])
RESPONSES = st.tuples(st.just("response"), st.sampled_from(URLS), STATUSES, FIELDS, st.none() | st.floats(-5, 0))
OTHERS = st.one_of(
    st.tuples(st.just("broken"), st.sampled_from(URLS), STATUSES),
    st.tuples(st.just("clear"), st.sampled_from(URLS)),
    st.tuples(st.just("spend"), st.sampled_from(URLS)),
    st.tuples(st.just("reset")),
    st.tuples(st.just("forget")),
)
OPERATIONS = st.one_of(RESPONSES, RESPONSES, RESPONSES, RESPONSES, OTHERS)
STEPS = st.lists(st.tuples(st.integers(0, 2), SECONDS, OPERATIONS), min_size=10, max_size=30)
SETTINGS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from([Policy(), Policy.chromium(), Policy(num_errors_to_ignore=0, maximum_backoff=5)]),
        "draw": st.floats(0, 1, exclude_max=True).map(lambda draw: lambda: draw),
        "retry_budget": st.sampled_from([None, 0, 2]),
        "coalesce": st.booleans(),
    }
)


def tell(throttle, operation, now):
    """Tell a throttle something; return what it says to that."""
    match operation:
        case ("response", url, status, fields, before):
            sent = None if before is None else now + before
            return throttle.response_received(url, status, fields, now=now, sent=sent)
        case ("broken", url, status):
            return throttle.malformed_body(url, status, now=now)
        case ("clear", url):
            return throttle.clear_backoff(url, now=now)
        case ("spend", url):
            return throttle.spend_retry(url)
        case ("reset",):
            return throttle.reset()
        case ("forget",):
            return throttle.forget(now=now)
    raise AssertionError(operation)


def answers(throttle, now):
    """Return all that a throttle can be asked."""
    return [
        (
            throttle.release_time(url, now=now),
            throttle.retries_left(url),
            throttle.explain(url, now=now),
            len(throttle),
        )
        for url in URLS
    ]


@settings(max_examples=60)
@given(given_=SETTINGS, steps=STEPS)
def test_whoever_is_told_each_answers_as_one_throttle_would(given_, steps):
    alone, now = Mirror(**given_), 1_000.0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shared = [stack.enter_context(SharedThrottle(Path(folder, "file"), **given_)) for _ in range(3)]
        for who, wait, operation in steps:
            now += wait
            assert tell(shared[who], operation, now) == tell(alone, operation, now)
            expected = answers(alone, now)
            assert [answers(each, now) for each in shared] == [expected] * 3
        # One that comes later knows all of it.
        with SharedThrottle(Path(folder, "file"), **given_) as late:
            assert answers(late, now) == answers(alone, now)
        assert [each.trouble for each in shared] == [""] * 3


@given(given_=SETTINGS, steps=STEPS)
def test_a_mirror_answers_as_a_throttle_does(given_, steps):
    mirror, plain, now = Mirror(**given_), Throttle(**given_), 1_000.0
    short = [url for url in URLS if len(url) < 1_000]
    for _, wait, operation in steps:
        if len(operation) > 1 and operation[1] not in short:
            continue
        now += wait
        assert tell(mirror, operation, now) == tell(plain, operation, now)
        for url in short:
            assert mirror.explain(url, now=now) == plain.explain(url, now=now)
            assert mirror.retries_left(url) == plain.retries_left(url)


@given(given_=SETTINGS, steps=STEPS, last=RESPONSES)
def test_what_concerns_no_target_changes_nothing(given_, steps, last):
    mirror, now = Mirror(**given_), 1_000.0
    for _, wait, operation in steps:
        now += wait
        tell(mirror, operation, now)
    _, url, status, fields, _ = last
    before = answers(mirror, now)
    if mirror._concerned(url, status, mirror._words(fields), now=now) is None:
        with mirror.recording():
            mirror.response_received(url, status, fields, now=now)
        changes = mirror.changes()
        assert (changes.cleared, changes.gone, changes.rows) == (set(), [], [])
        assert answers(mirror, now) == before


@settings(max_examples=20)
@given(
    most=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(0, 1), SECONDS, st.integers(0, 60), STATUSES, st.booleans()), max_size=60),
)
def test_all_together_are_bounded(most, steps):
    now = 0.0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder, "file")
        given_ = {"max_targets": most, "max_opt_outs": most, "retry_budget": 1}
        shared = [stack.enter_context(SharedThrottle(path, **given_)) for _ in range(2)]
        for who, wait, number, status, declares in steps:
            now += wait
            url = f"http://h{number % 30}.example/d{number}/x"
            headers = {"DDoS-Bucket-With": f"/d{number}"} if declares else {"Exponential-Throttling": "disable"}
            shared[who].response_received(url, status, headers if number % 3 else {}, now=now)
            shared[who].spend_retry(url)
            assert len(shared[0]) == len(shared[1]) <= most
            for each in shared:
                assert len(each._opt_outs) <= most
                assert len(each._budget) <= most


@pytest.mark.parametrize("instances", [1, 3])
def test_no_failure_is_lost_among_threads(tmp_path, instances):
    url = "http://a.example/x"
    with ExitStack() as stack:
        shared = [stack.enter_context(SharedThrottle(tmp_path / "file")) for _ in range(instances)]
        threads = [
            Thread(target=lambda each=each: [each.response_received(url, 503, {}, now=9.0) for _ in range(40)])
            for each in shared * (6 // instances)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.explain(url, now=9.0).failures for each in shared] == [240] * instances
        assert [(each.postponed, each.lost) for each in shared] == [(0, 0)] * instances
