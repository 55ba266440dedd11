"""A shared throttle in one process equals a throttle in memory; several processes never shorten a hold."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agent import SharedThrottle
from headgate.agent import shared_store as store
from headgate.throttle import Policy, Throttle

TIMEOUT = 60.0  # seconds; only ever reached by a failing test
PATHS = ["/", "/m", "/m/a", "/m/" + "l" * 2_000 + "1", "/m/" + "l" * 2_000 + "2"]
URLS = ["http://a.example" + path for path in PATHS] + ["http://a.example:81/m"]
SECONDS = st.sampled_from([0.0, 0.0, 0.0, 0.3, 0.3, 2.5, 119.5, 900.0])
FIELD_SETS = [
    {"Retry-After": "5"},
    {"Retry-After": "1000"},
    {"DDoS-Bucket-With": "/m"},
    {"DDoS-Bucket-With": "/m/a"},
    {"DDoS-Bucket-With": "/", "Retry-After": "7"},
    {"Exponential-Throttling": "disable"},
]
FIELDS = st.sampled_from([{}] * 14 + FIELD_SETS)
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
STEPS = st.lists(st.tuples(SECONDS, OPERATIONS, st.booleans()), min_size=10, max_size=30)
MANY_STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0.0, 0.0, 0.3, 2.5, 119.5]),
        RESPONSES,
        st.sets(st.integers(0, 2), max_size=2),
    ),
    min_size=5,
    max_size=25,
)
few = settings(max_examples=max(30, settings.default.max_examples // 10))  # each waits for the disk
SETTINGS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from([Policy(), Policy.chromium(), Policy(num_errors_to_ignore=0, maximum_backoff=5)]),
        "draw": st.floats(0, 1, exclude_max=True).map(lambda draw: lambda: draw),
        "retry_budget": st.sampled_from([None, 0, 2]),
        "coalesce": st.booleans(),
    }
)


def by_hand_alone(shared):
    return shared._phase is not store._Phase.OPEN or shared._rounds < shared._rounds_wanted


@pytest.fixture(scope="module", autouse=True)
def _by_hand():
    """Have threads look at the file only when `synchronize` is called, so that every run is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_REFRESH_INTERVAL", TIMEOUT)
        patch.setattr(store.SqliteStore, "_has_work", by_hand_alone)
        yield


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
    """Return what a throttle can be asked."""
    return [
        (throttle.release_time(url, now=now), throttle.retries_left(url), throttle.explain(url, now=now))
        for url in URLS
    ]


def synchronize(*throttles):
    """Have all know what each of them knew, and the first ones what the later ones wrote."""
    assert all(throttle.synchronize(TIMEOUT) for throttle in (*throttles, *throttles))


@few
@given(given_=SETTINGS, steps=STEPS)
def test_one_process_equals_a_throttle_in_memory(given_, steps):
    plain, now = Throttle(**given_), 1_000.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        with SharedThrottle(path, **given_) as shared:
            for wait, operation, synchronizes in steps:
                now += wait
                told = tell(shared, operation, now), tell(plain, operation, now)
                assert told[0] == told[1] or operation[0] == "forget"
                if synchronizes:
                    synchronize(shared)
                assert answers(shared, now) == answers(plain, now)
            synchronize(shared)
            assert answers(shared, now) == answers(plain, now)
            assert (shared.trouble, shared.postponed, shared.lost) == ("", 0, 0)
        # One that comes later knows all of it.
        with SharedThrottle(path, **given_) as late:
            assert answers(late, now) == answers(plain, now)


@few
@given(given_=SETTINGS, steps=MANY_STEPS)
def test_several_processes_never_shorten_a_hold_and_converge(given_, steps):
    now = 1_000.0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shared = [stack.enter_context(SharedThrottle(Path(folder, "file"), **given_)) for _ in range(3)]
        learned = dict.fromkeys(URLS, float("-inf"))
        for who, wait, operation, synchronizing in steps:
            now += wait
            tell(shared[who], operation, now)
            for url in URLS:
                # Kept apart from opting out, which ends a hold.
                found = shared[who].explain(url, now=now)
                learned[url] = max(learned[url], found.backoff, found.retry_after)
            for each in synchronizing:
                synchronize(shared[each])
        synchronize(*shared)
        ends = [answers(each, now) for each in shared]
        assert ends == [ends[0]] * 3
        for url in URLS:
            found = shared[0].explain(url, now=now)
            holds = max(found.backoff, found.retry_after)
            assert found.reason == "opted out" or holds >= learned[url] or learned[url] <= now


@few
@given(
    most=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(0, 1), SECONDS, st.integers(0, 60), STATUSES, st.booleans()), max_size=60),
)
def test_file_and_processes_are_bounded(most, steps):
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
            if number % 5 == 0:
                synchronize(shared[who])
        synchronize(*shared)
        assert max(map(len, shared)) <= most
        with SharedThrottle(path, max_targets=1_000, max_opt_outs=1_000, retry_budget=1) as wide:
            assert len(wide) <= most
            hosts = {f"h{number % 30}.example" for _, _, number, _, _ in steps}
            assert sum(wide.explain(f"http://{host}/", now=now).reason == "opted out" for host in hosts) <= most
            assert sum(wide.retries_left(f"http://{host}/") < 1 for host in hosts) <= most


@pytest.mark.parametrize("instances", [1, 3])
def test_failures_of_threads_are_not_lost(tmp_path, instances):
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
        synchronize(*shared)
        assert [each.explain(url, now=9.0).failures for each in shared] == [240] * instances
        assert [(each.postponed, each.lost) for each in shared] == [(0, 0)] * instances
