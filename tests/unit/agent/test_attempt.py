"""The way of one request, without any HTTP library: the test is the transport, and the clock."""

import contextvars
import itertools
import math
import pickle
import re
from contextlib import suppress
from dataclasses import replace

import pytest

from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.agent import Courtesy, Retry, RetryLater
from headgate.agent.wait import FetchWait, Pause
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle
from tests.quotes import quotes

URL = "https://example.com/path?query"
TARGET = "https://example.com/path"
BAD = (503, {})
GOOD = (200, {})


def advises(text: str, **fields: str) -> AdviceResponse:
    lines = [("Content-Type", "application/trafficadvice+json"), *((name, value) for name, value in fields.items())]
    return AdviceResponse(200, lines, text.encode())


ALL = advises('[{"user_agent":"*"}]')
HALF = advises('[{"user_agent":"*","fraction":0.5}]')
NONE = advises('[{"user_agent":"*","disallow":true}]')


class World:
    """A clock, the draws, the origin's advice, and all that was sent or slept."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.draws = itertools.repeat(0.0)
        self.jitter = 0.0
        self.advice = ALL
        self.asked: list[str] = []
        self.slept: list[float] = []
        self.sent = 0

    def _fetch(self, request, report):
        self.asked.append(request.url)
        report(self.advice)

    def courtesy(self, **options) -> Courtesy:
        options = {"throttle": self.throttle(), **options}
        courtesy = Courtesy(clock=lambda: self.now, draw=lambda: next(self.draws), **options)
        if courtesy._state.sources:
            courtesy._state.sources[0]._default = self._fetch  # in the place of a client that opens connections
        return courtesy

    def throttle(self, **policy) -> Throttle:
        """Make one with the jitter of this world, which shortens no backoff."""
        return Throttle(replace(Policy.draft(), jitter_factor=0, **policy), draw=lambda: self.jitter)

    def pass_through(self, attempt, answers) -> tuple[int, object]:
        """Send as often as the attempt says, and give the last response."""
        for status, headers in answers:
            while (wait := attempt.wait()) is not None:
                if isinstance(wait, Pause):
                    self.slept.append(wait.seconds)
                    self.now += wait.seconds
                else:
                    wait.block()
            self.sent += 1
            if attempt.received(status, headers):
                return status, headers
        raise AssertionError("asked for more than there is")

    def go(self, courtesy, *answers, method="GET", url=URL, **options):
        return self.pass_through(courtesy.attempt(method, url, **options), answers)


@pytest.fixture
def world():
    return World()


def held(world, courtesy, url=URL, **options) -> RetryLater:
    sent, slept = world.sent, len(world.slept)
    with pytest.raises(RetryLater) as caught:
        world.go(courtesy, GOOD, url=url, **options)
    assert (world.sent, len(world.slept)) == (sent, slept)
    return caught.value


@quotes(
    "anti-ddos-throttling",
    "Describes a throttling mechanism User-Agents can implement that limits the ability of websites and "
    "browser extensions to perpetrate a DDoS (Distributed Denial of Service) attack.",
)
def test_a_target_is_held_after_three_failures(world):
    courtesy = world.courtesy()
    for _ in range(3):
        world.go(courtesy, BAD)
    error = held(world, courtesy)
    assert (error.release_time, error.reason, error.target) == (world.now + 0.98, "backoff", TARGET)
    world.go(courtesy, GOOD, url="https://example.com/other")
    world.now += 0.98
    world.go(courtesy, GOOD)


@quotes(
    "anti-ddos-throttling 4",
    "It could therefore be used e.g. to optimize AJAX applications, where the client by default pings the"
    " server very frequently, and the server then controls the actual rate of pings by using this header.",
)
def test_retry_after_is_obeyed_on_any_status(world):
    courtesy = world.courtesy()
    world.go(courtesy, (200, [(b"Retry-After", b"60")]))
    error = held(world, courtesy)
    assert (error.release_time, error.reason, error.target) == (world.now + 60, "retry-after", TARGET)
    assert str(error) == (
        "https://example.com/path is held by its Retry-After; retry at 1970-01-12T13:47:40Z, in 60.0 s"
    )
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.release_time, again.reason, again.target) == (
        RetryLater, error.release_time, error.reason, error.target,
    )  # fmt: skip


def test_a_request_that_may_never_be_sent_is_refused_with_that_text(world):
    courtesy = world.courtesy(wait=1e9)
    world.go(courtesy, (200, {"Retry-After": "9" * 400}))
    error = held(world, courtesy)
    assert error.release_time == math.inf
    assert str(error) == "https://example.com/path is held by its Retry-After; do not retry"


def test_a_hold_of_exactly_wait_is_waited_for(world):
    courtesy = world.courtesy(wait=60.0)
    world.go(courtesy, (200, {"Retry-After": "60"}))
    world.go(courtesy, GOOD)
    assert world.slept == [60.0]


def test_a_hold_that_grows_during_a_wait_is_limited_by_wait(world):
    courtesy = world.courtesy(wait=10.0)
    world.go(courtesy, (200, {"Retry-After": "6"}))
    attempt = courtesy.attempt("GET", URL)
    wait = attempt.wait()
    assert wait.seconds == 6.0
    world.now += 5.0
    world.go(courtesy, (200, {"Retry-After": "6"}), interactive=True)
    world.now += 1.0
    with pytest.raises(RetryLater) as caught:
        attempt.wait()
    assert caught.value.release_time == world.now + 5.0


def test_a_clock_that_is_set_back_does_not_extend_a_wait_for_ever(world):
    courtesy = world.courtesy(wait=2.0)
    world.go(courtesy, (200, {"Retry-After": "2"}))
    attempt = courtesy.attempt("GET", URL)
    slept = 0.0

    def keep_waiting() -> None:
        nonlocal slept
        for _ in range(100):
            slept += attempt.wait().seconds
            world.now -= 1000.0

    with pytest.raises(RetryLater):
        keep_waiting()
    assert slept <= 6.0


def test_there_are_no_retries_by_default(world):
    assert world.go(world.courtesy(wait=100), BAD) == BAD


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "get"])
@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_repeatable_request_is_retried_after_a_failure_or_429(world, method, status):
    assert world.go(world.courtesy(retry=2), (status, {}), (status, {}), GOOD, method=method) == GOOD
    assert world.sent == 3


PAUSES = [(503, {}, 0.0, [0.5, 1.0, 2.0]), (503, {}, 0.5, [0.75, 1.5, 3.0]), (429, {}, 0.5, [1.5, 3.0, 6.0]),
          (429, {"Retry-After": "0"}, 0.0, [1.0, 2.0, 4.0]),
          (429, {"Retry-After": "1"}, 0.5, [1.5, 1.5, 1.5])]  # fmt: skip


@pytest.mark.parametrize("url", [URL, "http://127.0.0.1:8080/"])
@pytest.mark.parametrize("interactive", [False, True])
@pytest.mark.parametrize(("status", "fields", "draw", "pauses"), PAUSES)
def test_each_retry_waits_a_jittered_pause_twice_as_long_as_the_last(
    world, url, interactive, status, fields, draw, pauses
):
    world.jitter = draw
    courtesy = world.courtesy(retry=3, wait=60, throttle=world.throttle(num_errors_to_ignore=100))
    answer = status, fields
    assert world.go(courtesy, answer, answer, answer, GOOD, url=url, interactive=interactive) == GOOD
    assert world.slept == [pytest.approx(pause) for pause in pauses]


def test_opt_outs_and_user_gestures_do_not_shorten_pauses(world):
    courtesy = world.courtesy(retry=1)
    courtesy.user_gesture()
    world.go(courtesy, (503, {"Exponential-Throttling": "disable"}), GOOD)
    assert world.slept == [0.5]


def test_a_retry_waits_for_the_latest_of_its_pause_its_retry_after_and_the_throttle(world):
    world.go(world.courtesy(retry=1), (503, {"Retry-After": "3"}), GOOD)
    assert world.slept == [3.0]
    courtesy = world.courtesy(retry=1)
    for _ in range(4):
        world.go(courtesy, BAD, interactive=True, method="POST")
    world.now += 1.4
    world.go(courtesy, BAD, GOOD)
    assert world.slept[1:] == [pytest.approx(1.9208)]


@pytest.mark.parametrize(("wait", "sent"), [(0.7, 1), (0.75, 2)])
def test_a_retry_with_a_pause_above_wait_is_not_made(world, wait, sent):
    world.jitter = 0.5
    world.go(world.courtesy(retry=1, wait=wait), BAD, BAD)
    assert world.sent == sent


def test_wait_is_five_seconds_by_default_with_retries(world):
    assert world.courtesy()._state.max_delay == 0.0
    assert world.courtesy(retry=1)._state.max_delay == 5.0
    assert world.courtesy(retry=1, wait=0.0)._state.max_delay == 0.0
    assert world.go(world.courtesy(retry=1, wait=0.0), BAD, GOOD) == BAD


@pytest.mark.parametrize("retry_after", [{}, {"Retry-After": "4"}])
def test_a_clock_that_is_set_back_does_not_extend_a_pause(world, retry_after):
    attempt = world.courtesy(retry=1).attempt("GET", "http://127.0.0.1/")
    attempt.wait()
    assert not attempt.received(503, retry_after)
    world.now -= 3600
    assert attempt.wait().seconds == (4.0 if retry_after else 0.5)
    assert attempt.wait() is None


def test_a_long_pause_is_split_into_waits_of_an_hour(world):
    attempt = world.courtesy(retry=1, wait=1e9).attempt("GET", "http://127.0.0.1/")
    attempt.wait()
    assert not attempt.received(503, {"Retry-After": "7201"})
    assert [attempt.wait().seconds for _ in range(3)] == [3600.0, 3600.0, 1.0]
    assert attempt.wait() is None


@pytest.mark.parametrize("method", ["POST", "PATCH", "CONNECT", "TRACE", "QUERY"])
def test_other_methods_are_not_retried(world, method):
    assert world.go(world.courtesy(retry=2), BAD, GOOD, method=method) == BAD


@pytest.mark.parametrize("status", [200, 301, 400, 404, 501, 505, 509])
def test_other_statuses_are_not_retried(world, status):
    assert world.go(world.courtesy(retry=2), (status, {}), GOOD) == (status, {})


def test_a_consumed_body_is_not_sent_again(world):
    assert world.go(world.courtesy(retry=2), BAD, GOOD, repeatable=False) == BAD


def test_a_retry_may_wait_as_long_as_the_first_attempt(world):
    courtesy = world.courtesy(wait=5, retry=1)
    world.go(courtesy, (200, {"Retry-After": "4"}))
    attempt = courtesy.attempt("GET", URL)
    assert attempt.wait().seconds == 4
    world.now += 4
    assert attempt.wait() is None
    assert not attempt.received(503, {})
    world.now += attempt.wait().seconds
    world.go(courtesy, (200, {"Retry-After": "5"}), interactive=True)
    assert attempt.wait().seconds == 5


def test_a_retry_is_charged_to_the_budget_when_it_is_decided(world):
    throttle = Throttle(replace(Policy.draft(), num_errors_to_ignore=100), retry_budget=2)
    courtesy = world.courtesy(retry=5, throttle=throttle)
    attempts = [courtesy.attempt("GET", URL) for _ in range(3)]
    for attempt in attempts:
        assert attempt.wait() is None
    assert [attempt.received(503, {}) for attempt in attempts] == [False, False, True]
    assert throttle.retries_left(URL) == 0
    for attempt in attempts[:2]:  # what is decided is sent, whatever others do
        world.now += attempt.wait().seconds
        assert attempt.wait() is None
        assert attempt.received(*GOOD)


LOST = [
    ("GET", {}, "broken", False),
    ("GET", {}, "unsent", False),
    ("GET", {}, "ours", True),
    ("POST", {}, "broken", True),
    ("POST", {}, "unsent", False),
    ("POST", {"idempotent": True}, "broken", False),
    ("POST", {"idempotent": True, "repeatable": False}, "unsent", True),
]


@pytest.mark.parametrize(("method", "options", "failure", "is_raised"), LOST)
def test_requests_without_a_response_are_retried(world, method, options, failure, is_raised):
    attempt = world.courtesy(retry=1).attempt(method, URL, **options)
    assert attempt.wait() is None
    assert attempt.lost(OSError(), failure) is is_raised
    if not is_raised:
        assert attempt.wait().seconds == 0.5
        assert attempt.wait() is None
        assert attempt.lost(OSError(), failure)


def test_the_limits_of_retries_can_be_chosen(world):
    retry = Retry(3, statuses={418}, methods={"POST"}, exceptions=(KeyError,), total_time=1.6)
    courtesy = world.courtesy(retry=retry, wait=100)
    assert world.go(courtesy, (503, {}), method="POST") == (503, {})
    assert world.go(courtesy, (418, {})) == (418, {})
    answers = [(418, {})] * 3
    assert world.go(courtesy, *answers, method="POST") == (418, {})
    assert world.slept == [0.5, 1.0]  # a third pause would end later than 1.6 s after the first request
    for error, is_raised in ((KeyError(), False), (ValueError(), True)):
        attempt = courtesy.attempt("POST", URL)
        attempt.wait()
        assert attempt.lost(error) is is_raised


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attempts": -1}, "retry must be an integer of at least 0, got -1"),
        ({"total_time": -1}, "total_time must be a non-negative number of seconds, got -1"),
        ({"statuses": "503"}, "statuses must be a set such as {429, 503}, got '503'"),
        ({"methods": "POST"}, "methods must be a set such as {'GET', 'POST'}, got 'POST'"),
        ({"exceptions": (OSError, "x")}, "exceptions must be a tuple of classes, got"),
    ],
)
def test_invalid_limits_of_retries_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Retry(**{"attempts": 1, **options})


def test_a_request_that_is_cancelled_while_it_waits_is_finished(world):
    courtesy = world.courtesy(wait=60)
    world.go(courtesy, (200, {"Retry-After": "60"}))
    attempt = courtesy.attempt("GET", URL)
    attempt.wait()
    assert attempt.lost()
    with pytest.raises(RuntimeError, match="is FINISHED"):
        attempt.wait()
    assert courtesy.counters.get("lost") is None


def test_wait_true_waits_as_long_as_it_takes_and_retries(world):
    courtesy = world.courtesy(wait=True)
    assert world.go(courtesy, (503, {"Retry-After": "7000"}), GOOD) == GOOD
    assert sum(world.slept) == 7000
    world.go(courtesy, (200, {"Retry-After": "9" * 400}))
    with pytest.raises(RetryLater):
        world.go(courtesy, GOOD)


# -- advice


def polite(world, **options) -> Courtesy:
    return world.courtesy(identity=["ExampleBot", "*"], **options)


@quotes(
    "traffic-advice 1",
    'We propose a well-known "traffic advice" resource, analogous to robots.txt (for web crawlers), which'
    " allows an HTTP server to request that implementing agents stop sending traffic to it for some time.",
)
@quotes(
    "traffic-advice 7",
    "When they would be able to respect advice to disallow traffic to an origin (for example, when "
    "requested to proxy prefetch traffic to the origin), traffic advice respecting agents should fetch "
    "traffic advice (respecting [HTTP-CACHING] semantics).",
    "If the result's disallowed flag is true, then the HTTP server advises that traffic is discouraged at"
    " this time. Agents should respect this by not establishing new connections or sending new requests.",
)
def test_advice_is_fetched_once_and_obeyed(world):
    courtesy = polite(world)
    world.advice = NONE
    error = held(world, courtesy)
    assert (error.reason, error.target) == ("advice_disallowed", "https://example.com")
    assert error.release_time == world.now + 1800
    assert str(error).startswith(
        "https://example.com is held by its traffic advice, which disallows all traffic; retry"
    )
    held(world, courtesy, url="https://example.com/other")
    assert world.asked == ["https://example.com/.well-known/traffic-advice"]
    world.advice = ALL
    world.now = error.release_time
    world.go(courtesy, GOOD)
    assert len(world.asked) == 2


def test_an_interactive_request_obeys_the_advice(world):
    world.advice = NONE
    held(world, polite(world), interactive=True)


def test_advice_of_localhost_is_obeyed(world):
    world.advice = NONE
    held(world, polite(world), url="http://127.0.0.1:8080/")
    world.go(polite(world), GOOD, url="http://example.com/")  # which may not be asked
    assert world.asked == ["http://127.0.0.1:8080/.well-known/traffic-advice"]


@quotes(
    "traffic-advice 7",
    "Otherwise, if the result's fraction is less than 1, then the HTTP server advises that it would like "
    "to receive only a fraction of the possible traffic.",
)
def test_a_fraction_of_requests_is_sent(world):
    courtesy = polite(world)
    world.advice = HALF
    sent = [is_sent(courtesy, number, world) for number in range(1000)]
    assert 450 < sum(sent) < 550
    assert [is_sent(courtesy, number, world) for number in range(1000)] == sent
    world.now += 1800
    assert [is_sent(courtesy, number, world) for number in range(1000)] != sent


def is_sent(courtesy, number, world, method="GET") -> bool:
    try:
        world.go(courtesy, GOOD, url=f"https://example.com/{number}", method=method)
    except RetryLater as held:
        return (held.reason, held.release_time) != ("advice_fraction", world.now + 1800)
    return True


@quotes(
    "traffic-advice 7",
    "This process should not be repeated as part of automatic retry logic, since this would defeat the "
    "server's ability to shed load in this manner.",
)
def test_a_retry_keeps_its_draw(world):
    # 7: "This process should not be repeated as part of automatic retry logic"
    world.advice = HALF
    courtesy = polite(world, retry=2, throttle=Throttle(Policy.draft(), draw=lambda: 0.0, retry_budget=None))
    urls = [number for number in range(50) if is_sent(courtesy, number, world)]
    for number in urls:
        assert world.go(courtesy, BAD, BAD, GOOD, url=f"https://example.com/{number}") == GOOD


@pytest.mark.parametrize(
    ("location", "url"),
    [
        (b"/a|[b]", "https://example.com/a%7C%5Bb%5D"),
        (b"/%7Ea%2fb", "https://example.com/~a%2Fb"),
        (b"/caf\xc3\xa9", "https://example.com/caf%C3%A9"),
        (b"/caf\xe9", "https://example.com/caf%C3%A9"),
        ("/caf\xe9", "https://example.com/café"),
        (b"?%zz", "https://example.com/path?%25zz"),
    ],
)
def test_a_redirect_stays_interactive_however_it_is_quoted(world, location, url):
    def hops() -> None:
        courtesy = world.courtesy()
        world.go(courtesy, (200, {"Retry-After": "60"}), url=url)
        name = "Location" if isinstance(location, str) else b"Location"
        world.go(courtesy, (302, [(name, location)]), interactive=True)
        world.go(courtesy, GOOD, url=url)

    contextvars.Context().run(hops)


@pytest.mark.parametrize(
    ("status", "keeps"),
    [(301, True), (302, True), (303, True), (307, True), (308, True), (300, False), (304, False), (306, False)],
)
def test_only_redirects_pass_on_the_interactive_flag(world, status, keeps):
    def hops() -> None:
        courtesy = world.courtesy()
        world.go(courtesy, (200, {"Retry-After": "60"}), url="https://example.com/next")
        world.go(courtesy, (status, {"Location": "/next"}), interactive=True)
        if keeps:
            world.go(courtesy, GOOD, url="https://example.com/next")
        held(world, courtesy, url="https://example.com/next")

    contextvars.Context().run(hops)


def test_an_interactive_request_that_is_lost_or_redirected_nowhere_leaves_nothing_to_later_ones(world):
    def again() -> None:
        courtesy = world.courtesy()
        world.go(courtesy, (200, {"Retry-After": "60"}))
        attempt = courtesy.attempt("GET", URL, interactive=True)
        assert attempt.wait() is None
        attempt.lost()
        held(world, courtesy)
        world.go(courtesy, (302, {}), interactive=True)
        held(world, courtesy)

    contextvars.Context().run(again)


def test_the_flag_is_taken_over_by_one_request_however_many_tasks_begin_after_it(world):
    def before() -> list[contextvars.Context]:
        world.go(courtesy, (200, {"Retry-After": "60"}))
        world.go(courtesy, (302, {"Location": URL}), interactive=True)  # which is not followed
        return [contextvars.copy_context() for _ in range(3)]

    courtesy = world.courtesy()
    tasks = contextvars.Context().run(before)
    tasks[0].run(world.go, courtesy, GOOD, url="https://example.com/other")  # which leaves it to nobody
    tasks[1].run(held, world, courtesy)


def test_unreachable_advice_holds_only_until_its_retry_after(world):
    courtesy = polite(world)
    world.advice = AdviceResponse(503, [("Retry-After", "600")], None)
    error = held(world, courtesy)
    assert (error.reason, error.release_time) == ("advice_unreachable", world.now + 600)
    assert "the Retry-After of its traffic advice response" in str(error)
    for silent in (AdviceResponse(503, [], None), NETWORK_ERROR):
        world.advice = silent
        world.go(polite(world), GOOD)


def test_a_request_that_waits_for_fresh_advice_asks_again(world):
    courtesy = polite(world, wait=10_000, retry=1)
    world.advice = advises('[{"user_agent":"*","fraction":0.000001}]')
    attempt = courtesy.attempt("GET", URL)
    assert isinstance(attempt.wait(), FetchWait)
    assert attempt.wait().seconds == 1800
    world.now += 1800
    assert isinstance(attempt.wait(), FetchWait)
    assert isinstance(attempt.wait(), Pause)


# -- advice that is not known yet


class Slow:
    """Fetches that are reported when the test says so; the clock goes on while a request waits for them."""

    def __init__(self, world, **options):
        self.world = world
        self.courtesy = polite(world, **options)
        self.courtesy._state.sources[0]._default = self.start
        self.reports = []

    def start(self, request, report):
        self.reports.append(report)

    def waits(self, attempt, *, seconds=math.inf):
        """Wait so long at most, and give what was waited in all; raises `RetryLater`."""
        waited = 0.0
        for _ in range(100):
            if waited >= seconds or (wait := attempt.wait()) is None:
                return waited
            waited += wait.seconds
            self.world.now += wait.seconds
        raise AssertionError("it waits and waits")


@pytest.mark.parametrize("wait", [0.0, 0.5, 3.0, 20.0])
def test_wait_limits_the_wait_for_advice(world, wait):
    slow = Slow(world, wait=wait)
    start = world.now
    with pytest.raises(RetryLater) as caught:
        slow.waits(slow.courtesy.attempt("GET", URL))
    assert world.now - start == pytest.approx(wait)
    held = caught.value
    assert (held.reason, held.target) == ("advice_pending", "https://example.com")
    assert world.now <= held.release_time <= world.now + 6
    assert "is held by its traffic advice or robots.txt, which has not been fetched yet; retry at" in str(held)
    # The fetch goes on, and the next request has its result.
    slow.reports[-1](ALL)
    assert slow.courtesy.attempt("GET", URL).wait() is None


def test_wait_limits_the_waits_for_advice_and_a_hold_together(world):
    slow = Slow(world, wait=5)
    attempt = slow.courtesy.attempt("GET", URL)
    assert slow.waits(attempt, seconds=5) == 5
    world.now -= 2  # after three seconds the advice is known
    slow.reports[0](AdviceResponse(503, [("Retry-After", "2")], None))
    assert attempt.wait().seconds == 2
    other = slow.courtesy.attempt("GET", "https://www.example.com/")
    assert slow.waits(other, seconds=5) == 5
    world.now -= 2
    slow.reports[1](AdviceResponse(503, [("Retry-After", "3")], None))
    with pytest.raises(RetryLater) as caught:
        other.wait()
    assert caught.value.reason == "advice_unreachable"


def test_after_a_local_failure_a_request_waits_or_fails(world):
    slow = Slow(world, wait=2)
    attempt = slow.courtesy.attempt("GET", URL)
    assert type(attempt.wait()) is FetchWait
    slow.reports[0](OSError(24, "Too many open files"))
    pause = attempt.wait()
    assert (type(pause), pause.seconds) == (FetchWait, pytest.approx(1))
    world.now += 1
    assert type(attempt.wait()) is FetchWait
    world.now += 0.5
    slow.reports[1](OSError(24, "Too many open files"))
    with pytest.raises(RetryLater) as caught:
        attempt.wait()
    # It never went as if there were no advice; and what cannot be fetched again in time is not waited for.
    assert (caught.value.reason, caught.value.release_time) == ("advice_pending", world.now + 1)
    assert world.sent == 0


def test_a_retry_may_wait_for_advice_as_long_as_the_first_attempt(world):
    slow = Slow(world, wait=3, retry=1)
    attempt = slow.courtesy.attempt("GET", URL)
    assert slow.waits(attempt, seconds=3) == 3
    slow.reports[0](ALL)
    assert attempt.wait() is None
    assert not attempt.received(503, {})
    assert attempt.wait().seconds == 0.5
    world.now += 200_000  # so long that nothing is known of the advice any more
    waited = 0.0
    with pytest.raises(RetryLater):  # noqa: PT012 - which of them raises is what is tested
        for _ in range(100):
            waited += attempt.wait().seconds
            world.now -= 1
    assert waited == 9


@pytest.mark.parametrize(("advice", "is_sent"), [(ALL, True), (AdviceResponse(404, [], None), True), (NONE, False)])
def test_a_slow_advice_resource_delays_requests_after_the_first_by_a_second(world, advice, is_sent):
    slow = Slow(world)
    attempt = slow.courtesy.attempt("GET", URL)
    assert attempt.wait().seconds == 6
    slow.reports[0](advice)
    world.now += 1700
    with suppress(RetryLater):
        slow.courtesy.attempt("GET", URL).wait()
    assert len(slow.reports) == 2  # in the background
    world.now += 100
    attempt = slow.courtesy.attempt("GET", URL)
    assert attempt.wait().seconds == 1
    world.now += 1
    if is_sent:
        assert attempt.wait() is None
    else:
        with pytest.raises(RetryLater) as caught:
            attempt.wait()
        assert (caught.value.reason, caught.value.release_time) == ("advice_disallowed", world.now + 5)


def test_a_request_that_the_throttle_refuses_does_not_wait_for_advice(world):
    slow = Slow(world)
    for _ in range(4):
        slow.courtesy.throttle.response_received(URL, 503, {}, now=world.now)
    with pytest.raises(RetryLater) as caught:
        slow.courtesy.attempt("GET", URL).wait()
    assert caught.value.reason == "backoff"
    assert slow.reports == []


def test_a_refusal_names_the_later_of_two_holds(world):
    courtesy = polite(world)
    world.advice = NONE
    held(world, courtesy)
    courtesy.throttle.response_received(URL, 503, {"Retry-After": "60"}, now=world.now)
    assert held(world, courtesy).reason == "advice_disallowed"
    courtesy.throttle.response_received(URL, 503, {"Retry-After": "6000"}, now=world.now)
    assert held(world, courtesy).reason == "retry-after"


def test_calls_in_another_order_are_an_error(world):
    courtesy = world.courtesy(retry=1)
    attempt = courtesy.attempt("GET", URL)
    with pytest.raises(RuntimeError, match="is WAITING; call wait, send, then received or lost"):
        attempt.received(200, {})
    assert attempt.wait() is None
    with pytest.raises(RuntimeError, match="is SENDING"):
        attempt.wait()
    assert attempt.received(200, {})
    for call in (attempt.wait, lambda: attempt.received(200, {})):
        with pytest.raises(RuntimeError, match="is FINISHED"):
            call()
    lost = courtesy.attempt("GET", URL)
    lost.wait()
    lost.lost()
    refused = courtesy.attempt("GET", URL)
    world.go(courtesy, (200, {"Retry-After": "60"}))
    with pytest.raises(RetryLater):
        refused.wait()
    for attempt in (lost, refused):
        with pytest.raises(RuntimeError, match="is FINISHED"):
            attempt.wait()
