"""What a courtesy is made of, and what is refused."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import pytest
import trio

from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.agent import Courtesy, RetryLater
from headgate.agent.aiohttp import Middleware
from headgate.agent.httpx import AsyncTransport, Transport
from headgate.agent.requests import Adapter
from headgate.agent.urllib import Handler
from headgate.errors import ConfigurationError
from headgate.release import ASAP, NEVER
from headgate.throttle import Policy, Throttle

URL = "https://example.com/path"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wait": -1}, "wait must be a non-negative number of seconds, got -1"),
        ({"wait": float("nan")}, "wait must be a non-negative number of seconds, got nan"),
        ({"wait": "5"}, "wait must be a non-negative number of seconds, got '5'"),
        ({"info": "https://example.com/"}, "info must be the URL of a page about the agent, beside its name"),
        ({"identity": "ABot", "info": "a page"}, "info must be the URL of a page about the agent, beside its name"),
        ({"identity": "ABot/1 2"}, "the version of 'ABot' must be a token such as '1.0', got '1 2'"),
        ({"identity": ["ABot/1", "*"]}, "contains a version, a URL or a User-Agent field; expected a brand name"),
        ({"retry_budget": "5"}, "retry_budget must be a non-negative number of retries, got '5'"),
        ({"policy": "chromium"}, "policy must be a Policy, such as Policy.chromium(), got 'chromium'"),
        ({"throttle": Policy()}, "throttle must be a Throttle or a SharedThrottle, got Policy("),
        ({"on_event": 3}, "on_event must be a function of one argument, got 3"),
        ({"tls": True}, "tls must be an ssl.SSLContext, got True"),
        ({"clock": 3}, "clock must be a function that returns seconds since 1970, got 3"),
        ({"draw": 0.5}, "draw must be a function that returns a number from [0, 1), got 0.5"),
        ({"identity": 3}, "the agent identity must be a brand name such as 'ExampleBot', or a list of names, got 3"),
        ({"retry": -1}, "retry must be an integer of at least 0, got -1"),
        ({"retry": 1.5}, "retry must be an integer of at least 0, got 1.5"),
        ({"retry": True}, "retry must be an integer of at least 0, got True"),
        ({"identity": "ABot", "min_freshness": 0}, "min_freshness must be above 0 and at most 172800 seconds, got 0"),
        ({"identity": "ExampleBot,*"}, "must be one name or a list of names"),
        ({"identity": ["*"]}, "['*'] must be a brand name, other names if any, and '*' at the end"),
        ({"identity": []}, "[] must be a brand name"),
        ({"policy": Policy.chromium(), "throttle": Throttle()}, "belong to the throttle; pass them to that"),
    ],
)
def test_invalid_arguments_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Courtesy(**options)


def test_transports_without_a_courtesy_are_refused():
    for transport in (Transport, AsyncTransport, Adapter, Middleware, Handler):
        with pytest.raises(ConfigurationError, match=r"expected a Courtesy, such as .*, got 'ExampleBot'"):
            transport("ExampleBot")


def test_advice_is_fetched_only_with_an_identity():
    assert not Courtesy().fetches_advice
    assert Courtesy(identity=["ExampleBot", "*"]).fetches_advice
    assert Courtesy("ExampleBot").fetches_advice


def failing(courtesy: Courtesy, times: int, url: str = URL) -> None:
    for _ in range(times):
        attempt = courtesy.attempt("GET", url)
        assert attempt.wait() is None
        assert attempt.received(503, {})


def test_interactive_applies_to_requests_of_this_thread_inside_the_block():
    courtesy = Courtesy(clock=lambda: 1000.0)
    failing(courtesy, 3)
    held: list[bool] = []

    def elsewhere() -> None:
        try:
            courtesy.attempt("GET", URL).wait()
        except RetryLater:
            held.append(True)

    with courtesy.interactive():
        assert courtesy.attempt("GET", URL).wait() is None
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join(10)
    assert held == [True]
    with pytest.raises(RetryLater):
        courtesy.attempt("GET", URL).wait()


def test_user_gestures_and_a_reset_of_the_throttle_end_holds():
    now = [1000.0]
    courtesy = Courtesy(clock=lambda: now[0], throttle=Throttle(draw=lambda: 0.0))
    with courtesy.interactive():
        failing(courtesy, 8)
    assert courtesy.explain(URL).reason == "backoff"
    courtesy.user_gesture()
    assert courtesy.attempt("GET", URL).wait() is None
    now[0] = 1003.5
    with pytest.raises(RetryLater):
        courtesy.attempt("GET", URL).wait()
    courtesy.throttle.reset()
    assert courtesy.attempt("GET", URL).wait() is None


def test_a_malformed_body_counts_as_a_failure():
    courtesy = Courtesy(clock=lambda: 1000.0)
    for _ in range(3):
        attempt = courtesy.attempt("GET", URL)
        attempt.wait()
        attempt.received(200, {})
        courtesy.malformed_body(URL, 200)
    with pytest.raises(RetryLater):
        courtesy.attempt("GET", URL).wait()


FORKING = """
import os, signal, sys, threading
from headgate.agent import Courtesy

courtesy, stop = Courtesy(["ExampleBot", "*"]), threading.Event()


def ask():
    while not stop.is_set():
        courtesy.explain("https://example.com/")
        courtesy._state.sources[0].known("https://example.com", now=0.0)


asking = [threading.Thread(target=ask) for _ in range(4)]
for thread in asking:
    thread.start()
codes = []
for _ in range(8):
    child = os.fork()
    if not child:
        signal.alarm(20)
        courtesy.explain("https://example.com/")
        courtesy._state.sources[0].known("https://example.com", now=0.0)
        os._exit(0)
    codes.append(os.waitpid(child, 0)[1])
    if codes[-1]:
        break
stop.set()
for thread in asking:
    thread.join()
sys.exit(any(codes))
"""


def test_a_forked_child_does_not_inherit_locks_of_other_threads():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


QUERY_URL = "https://example.com/path?query"
NOW = 1_000_000.0
ORIGIN = "https://example.com"
TYPED = [("Content-Type", "application/trafficadvice+json")]


def advises(entry: str) -> AdviceResponse:
    return AdviceResponse(200, TYPED, f'[{{"user_agent":"*"{entry}}}]'.encode())


def never_ends(request, report) -> None:
    pass


def make(outcome=None, **options) -> Courtesy:
    """Make a courtesy whose advice fetches result in `outcome`, or do not end without one."""
    policy = options.pop("policy", replace(Policy.draft(), jitter_factor=0))
    options = {"throttle": Throttle(policy, draw=lambda: 0.0), "clock": lambda: NOW, **options}
    courtesy = Courtesy("ExampleBot" if outcome is not None or options.pop("asks", False) else None, **options)
    if courtesy.fetches_advice:
        fetch = never_ends if outcome is None else lambda _, report: report(outcome)
        courtesy._state.sources[0]._default = fetch
    return courtesy


def fail(courtesy: Courtesy, count: int = 3, headers=()) -> None:
    for _ in range(count):
        attempt = courtesy.attempt("GET", QUERY_URL, interactive=True)
        assert attempt.wait() is None
        attempt.received(503, headers)


def release_async(courtesy: Courtesy, url: str) -> float:
    async def ask() -> float:
        return await courtesy.release_async(url)

    answers = asyncio.run(ask()), trio.run(ask)
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.parametrize("release", [Courtesy.release, release_async])
def test_release_is_the_later_of_throttle_and_advice(release):
    for outcome, expected in (
        (None, ASAP),
        (advises(""), ASAP),
        (advises(',"disallow":true'), NOW + 1800),
        (advises(',"fraction":0'), NOW + 1800),
        (advises(',"fraction":0.001'), ASAP),
        (NETWORK_ERROR, ASAP),
        (AdviceResponse(503, [("Retry-After", "90")], None), NOW + 90),
    ):
        assert release(make(outcome), QUERY_URL) == expected, outcome
    for seconds, expected in (("60", NOW + 1800), ("3600", NOW + 3600), ("9" * 400, NEVER)):
        courtesy = make(advises(',"disallow":true'))
        assert release(courtesy, QUERY_URL) == NOW + 1800  # which is then known
        courtesy.throttle.response_received(QUERY_URL, 200, {"Retry-After": seconds}, now=NOW)
        assert release(courtesy, QUERY_URL) == expected


def test_release_sends_nothing_and_counts_nothing():
    courtesy = make()
    fail(courtesy)
    assert courtesy.release(QUERY_URL) == NOW + 0.98
    assert courtesy.release(QUERY_URL, interactive=True) == ASAP
    assert courtesy.release("https://example.com/other") == ASAP
    assert courtesy.explain(QUERY_URL).failures == 3


@pytest.mark.parametrize("release", [Courtesy.release, release_async])
def test_release_needs_an_absolute_http_url(release):
    for url in ("example.com", "/path", "", "mailto:someone@example.com", "ftp://example.com/", "https://"):
        with pytest.raises(ConfigurationError, match=f"^{url!r} is not an http or https URL such as"):
            release(make(), url)


def test_methods_that_take_a_url_refuse_other_types():
    courtesy = make()
    malformed_body = partial(courtesy.malformed_body, status=200)
    for method in (courtesy.release, courtesy.explain, malformed_body):
        for url in (None, 3, QUERY_URL.encode()):
            with pytest.raises(ConfigurationError, match=r"expected a URL such as 'https://example.com/', got "):
                method(url)


def test_responses_that_came_another_way_are_observed_and_cleared():
    courtesy = make(policy=Policy(jitter_factor=0))
    courtesy.observe(QUERY_URL, 200, {"Retry-After": "60"})
    assert str(courtesy.explain(QUERY_URL)) == f"{ORIGIN}: held, for 60.000 s more: its Retry-After"
    courtesy.clear(ORIGIN)
    assert not courtesy.explain(QUERY_URL).held
    courtesy.observe(QUERY_URL, 202, {"Retry-After": "60", "Location": "/jobs/1"}, method="POST")
    assert [courtesy.explain(ORIGIN + path).held for path in ("/", "/jobs/1")] == [False, True]
    for _ in range(3):
        courtesy.lost(ORIGIN)
    assert courtesy.explain(QUERY_URL).reason == "backoff"


def test_the_explanation_includes_known_advice():
    courtesy = make(advises(',"disallow":true'))
    assert str(courtesy.explain(QUERY_URL)) == "https://example.com/path: free, not held, after no failures"
    courtesy.release(QUERY_URL)
    found = courtesy.explain(QUERY_URL)
    assert (found.held, found.release, found.reason) == (True, NOW + 1800, "advice_disallowed")
    assert str(found) == f"{ORIGIN}: held, for 1800.000 s more: its traffic advice disallows all traffic"


def test_courtesy_is_an_asynchronous_context_manager():
    async def use() -> None:
        async with make() as courtesy:
            assert courtesy.attempt("GET", QUERY_URL).wait() is None
        with pytest.raises(RuntimeError, match="closed"):
            courtesy.attempt("GET", QUERY_URL).wait()

    asyncio.run(use())


def test_release_fetches_no_advice_during_a_hold():
    courtesy = make(asks=True)
    courtesy.throttle.response_received(QUERY_URL, 200, {"Retry-After": "60"}, now=NOW)
    assert courtesy.release(QUERY_URL) == NOW + 60
    assert not courtesy._state.sources[0]._running


@pytest.mark.parametrize("release", [Courtesy.release, release_async])
def test_release_without_advice_in_time_returns_when_to_ask_again(release):
    assert release(make(asks=True, wait=0), QUERY_URL) == NOW + 6
    full = make(asks=True)
    full._state.sources[0].close()
    assert release(full, QUERY_URL) == NOW + 1


def test_release_waits_for_a_fetch_that_is_under_way():
    courtesy = make(asks=True)
    reports = []
    courtesy._state.sources[0]._default = lambda _, report: reports.append(report)

    class Waited(Future):
        def result(self, timeout=None):
            reports.pop()(advises(',"disallow":true'))

    answer = courtesy._state.sources[0].ask(ORIGIN, now=NOW)
    running = courtesy._state.sources[0]._running[ORIGIN]
    assert not answer.finished.done()
    running.finished = Waited()
    assert courtesy.release(QUERY_URL) == NOW + 1800


def test_events_are_counted_logged_and_told(caplog):
    caplog.set_level(logging.DEBUG, "headgate.agent")
    events = []
    throttle = Throttle(replace(Policy.draft(), jitter_factor=0), draw=lambda: 0.0)
    courtesy = make(advises(""), retry=1, wait=1.5, throttle=throttle, on_event=events.append)
    attempt = courtesy.attempt("GET", QUERY_URL)
    attempt.wait().block()
    assert attempt.wait() is None
    assert not attempt.received(503, {})
    assert [event.kind for event in events] == ["advice", "sent", "answered", "retried"]
    assert (events[0].url, events[0].reason, events[0].advice.result.fraction) == (ORIGIN, "all traffic is wanted", 1)
    assert (events[3].status, events[3].number, events[3].delay) == (503, 1, 0.5)
    fail(courtesy, 2)
    courtesy.attempt("GET", QUERY_URL).wait()
    courtesy.throttle.response_received(QUERY_URL, 200, {"Retry-After": "60"}, now=NOW)
    with pytest.raises(RetryLater):
        courtesy.attempt("GET", QUERY_URL).wait()
    lost = courtesy.attempt("GET", ORIGIN)
    assert lost.wait() is None
    lost.lost()
    target = "https://example.com/path"
    described = [
        (event.kind, event.reason, event.target, event.release_time - NOW, event.delay)
        for event in events
        if event.kind in {"waits", "held"}
    ]
    assert described == [
        ("waits", "backoff", target, pytest.approx(0.98), pytest.approx(0.98)),
        ("held", "retry-after", target, 60, 0.0),
    ]
    assert courtesy.counters == {
        "advice": 1, "sent": 4, "answered": 3, "retried": 3, "waits": 1, "held": 1, "lost": 1,
    }  # fmt: skip
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    for line in (
        ("DEBUG", f"{QUERY_URL} waits up to 1.5 s for the traffic advice of {ORIGIN}"),
        ("DEBUG", f"{ORIGIN}: all traffic is wanted"),
        ("DEBUG", f"GET {QUERY_URL}: 503"),
        ("DEBUG", f"GET {ORIGIN}: no response"),
        ("INFO", f"retry 1 of {QUERY_URL} after status 503 in 0.5 s"),
        ("INFO", f"{QUERY_URL} waits 1.0 s: backoff of {target}"),
        ("INFO", f"{QUERY_URL} is not sent: retry-after of {target}"),
    ):
        assert line in lines


def test_hook_that_raises_is_logged_and_the_request_goes_on(caplog):
    courtesy = make(advises(""), wait=2, on_event=lambda _: 1 / 0)
    attempt = courtesy.attempt("GET", QUERY_URL)
    attempt.wait().block()
    assert attempt.wait() is None
    courtesy.throttle.response_received(QUERY_URL, 200, {"Retry-After": "1"}, now=NOW)
    assert courtesy.attempt("GET", QUERY_URL).wait().seconds == 1
    assert len([record for record in caplog.records if "the hook" in record.message]) == 3


def test_closed_courtesy_ends_waits_and_sends_nothing():
    with make(asks=True) as courtesy:
        attempt = courtesy.attempt("GET", QUERY_URL)
        wait = attempt.wait()
        running = courtesy._state.sources[0]._running[ORIGIN]
    wait.block()  # returns at once
    for each in (attempt, courtesy.attempt("GET", QUERY_URL)):
        with pytest.raises(RuntimeError, match="this Courtesy is closed"):
            each.wait()
    courtesy.close()
    running.finish()  # a fetch that ends late finds it finished
