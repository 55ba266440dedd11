import io
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencyLimit, ConcurrencySettings, Domain, Gatekeeper, Rule
from headgate.limit.concurrency import Decision, Outcome
from headgate.origin import Rejections, Route, Routes, wsgi_concurrency
from headgate.origin.concurrency import PATIENCE
from headgate.origin.wsgi import GatekeeperMiddleware
from headgate.origin.wsgi_concurrency import WsgiConcurrency, fit_threads


class Clock:
    """The clock of the middleware: advances only when a test says so, so that no request waits for too long."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(wsgi_concurrency, "monotonic", clock)
    return clock


class Limit(ConcurrencyLimit):
    """Remembers what has ended and who waited, and how."""

    def __init__(self, maximum: int = 1, **settings: Any) -> None:
        super().__init__(ConcurrencySettings(max=maximum, **settings), lambda: 0.5)
        self.ends: list[Any] = []
        self.requests: list[Any] = []

    def end(self, domain: str, latency: float, outcome: Outcome, *, now: float) -> Any:
        self.ends.append((domain, latency, outcome))
        return super().end(domain, latency, outcome, now=now)

    def queue(self, request: Any, *, now: float) -> Any:
        self.requests.append(request)
        return super().queue(request, now=now)


def environ(path: str = "/", **more: str) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "REMOTE_ADDR": "192.0.2.1",
        "wsgi.input": io.BytesIO(),
        **more,
    }


class App:
    """Answers when it is released."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.released = threading.Event()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        self.calls.append(environ["PATH_INFO"])
        assert self.released.wait(10)
        start_response("200 OK", [])
        return [b"hello"]


class Content:
    """The content of a response, which counts how often it is closed."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.closed = 0

    def __iter__(self) -> Any:
        return iter(self.chunks)

    def close(self) -> None:
        self.closed += 1


class Server:
    """Serves requests in threads, each as a server does: iterates over the content, and closes it."""

    def __init__(self, middleware: Any) -> None:
        self.middleware = middleware
        self.pool = ThreadPoolExecutor(8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown()

    def get(self, path: str = "/", **more: str) -> Future[tuple[str, dict[str, str], bytes]]:
        return self.pool.submit(self._serve, environ(path, **more))

    def _serve(self, request: Any) -> tuple[str, dict[str, str], bytes]:
        heads: list[Any] = []
        content = self.middleware(request, lambda status, fields: heads.append((status, dict(fields))))
        try:
            body = b"".join(content)
        finally:
            if hasattr(content, "close"):
                content.close()
        return *heads[0], body


def limited(app: Any, limit: Limit, **options: Any) -> GatekeeperMiddleware:
    """A middleware with a limit of the test's own."""
    middleware = GatekeeperMiddleware(app, concurrency=ConcurrencySettings(max=1), threads=8, **options)
    assert middleware.concurrency is not None
    middleware.concurrency._limit = limit
    return middleware


def serve(app: Any, limit: Limit, **environs: Any) -> Any:
    with Server(limited(app, limit)) as server:
        return server.get(**environs).result(10)


def until(condition: Any) -> None:
    """Wait until a condition holds."""
    for _ in range(5000):
        if condition():
            return
        time.sleep(0.001)
    pytest.fail("the condition did not become true")


def counts(limit: ConcurrencyLimit) -> tuple[int, int]:
    return limit.state.in_flight, limit.state.queued


def test_a_limit_needs_no_gatekeeper_and_refuses_what_finds_no_place():
    app = App()
    middleware = GatekeeperMiddleware(app, concurrency=ConcurrencySettings(max=1, queue=0), threads=2)
    assert isinstance(middleware.concurrency, WsgiConcurrency)
    with Server(middleware) as server:
        first = server.get()
        until(lambda: app.calls)
        assert middleware.concurrency.state.in_flight == 1
        status, fields, body = server.get("/second").result(10)
        head = server.get(REQUEST_METHOD="HEAD").result(10)
        problem = server.get(HTTP_ACCEPT="application/json").result(10)
        app.released.set()
        assert first.result(10) == ("200 OK", {}, b"hello")
    assert app.calls == ["/"]
    assert status == "503 Service Unavailable"
    assert int(fields["Retry-After"]) >= 1
    assert fields["Ratelimit"] == f'"concurrency";r=0;t={fields["Retry-After"]}'
    assert fields["Cache-Control"] == "no-store"
    assert b"busy" in body
    assert head[2] == b""
    assert problem[1]["Content-Type"] == "application/problem+json"
    assert middleware.concurrency.state.in_flight == 0


def test_a_refusal_has_the_status_of_rejections():
    app, limit = App(), Limit(queue=0)
    with Server(limited(app, limit, rejections=Rejections(status=429))) as server:
        first = server.get()
        until(lambda: app.calls)
        assert server.get().result(10)[0] == "429 Too Many Requests"
        app.released.set()
        first.result(10)


def test_a_queued_request_starts_when_another_ends(clock):
    app, limit = App(), Limit(queue=5, queue_target=1000.0)
    with Server(limited(app, limit)) as server:
        answers = [server.get("/first")]
        until(lambda: app.calls)
        answers += [server.get("/second"), server.get("/third")]
        until(lambda: counts(limit) == (1, 2))
        assert app.calls == ["/first"]
        clock.now += 0.5
        app.released.set()
        assert [answer.result(10)[0] for answer in answers] == ["200 OK"] * 3
    assert counts(limit) == (0, 0)
    assert [latency for _, latency, _ in limit.ends] == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("type_", [list, tuple])
def test_whole_content_is_returned_as_it_is(type_):
    limit = Limit()
    content = type_([b"a"])

    def app(environ, start_response):
        start_response("200 OK", [])
        return content

    assert limited(app, limit)(environ(), lambda *head: None) is content
    assert limit.ends == [("", 0.0, Outcome.ANSWERED)]


def test_a_file_of_the_server_is_returned_as_it_is():
    limit = Limit()
    content = Content()

    def app(environ, start_response):
        start_response("200 OK", [])
        return content

    request = {**environ(), "wsgi.file_wrapper": Content}
    assert limited(app, limit)(request, lambda *head: None) is content
    assert limit.in_flight == 0


def test_content_holds_its_place_until_it_is_closed(clock):
    limit, content = Limit(), Content(b"a", b"b")

    def app(environ, start_response):
        clock.now += 0.5
        start_response("200 OK", [])
        clock.now += 0.25
        return content

    returned = limited(app, limit)(environ(), lambda *head: None)
    assert list(returned) == [b"a", b"b"]
    assert limit.in_flight == 1
    returned.close()
    assert content.closed == 1
    assert limit.ends == [("", 0.5, Outcome.ANSWERED)]
    returned.close()
    assert limit.in_flight == 0


def test_a_generator_may_send_its_head_late(clock):
    limit = Limit()

    def app(environ, start_response):
        clock.now += 0.5
        start_response("200 OK", [])
        yield b"a"

    content = limited(app, limit)(environ(), lambda *head: None)
    assert limit.in_flight == 1
    assert list(content) == [b"a"]
    content.close()
    assert limit.ends == [("", 0.5, Outcome.ANSWERED)]


def test_content_that_is_closed_before_its_head_says_nothing_of_the_load():
    limit = Limit()

    def app(environ, start_response):
        start_response("200 OK", [])
        yield b"a"

    limited(app, limit)(environ(), lambda *head: None).close()
    assert limit.ends == [("", 0.0, Outcome.UNKNOWN)]


def test_content_whose_close_raises_gives_its_place_back():
    limit = Limit()

    class Broken(Content):
        def close(self):
            raise OSError("gone")

    def app(environ, start_response):
        start_response("200 OK", [])
        return Broken()

    content = limited(app, limit)(environ(), lambda *head: None)
    with pytest.raises(OSError, match="gone"):
        content.close()
    assert limit.in_flight == 0


class Stop(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError, Outcome.ANSWERED), (TimeoutError, Outcome.TIMED_OUT), (Stop, Outcome.UNKNOWN)],
)
def test_an_application_that_raises_gives_its_place_back(error, outcome, clock):
    limit = Limit()

    def app(environ, start_response):
        clock.now += 0.25
        raise error

    with pytest.raises(error):
        limited(app, limit)(environ(), lambda *head: None)
    assert limit.ends == [("", 0.25, outcome)]
    assert limit.in_flight == 0


def test_an_error_that_replaces_the_head_reaches_the_server():
    heads = []

    def app(environ, start_response):
        start_response("200 OK", [])
        try:
            raise ValueError("late")
        except ValueError:
            import sys

            start_response("500 Internal Server Error", [], sys.exc_info())
        return []

    limited(app, Limit())(environ(), lambda *head: heads.append(head))
    assert [len(head) for head in heads] == [2, 3]
    assert heads[1][2][0] is ValueError


def test_an_event_stream_gives_its_place_back_at_once():
    limit = Limit()

    def app(environ, start_response):
        start_response("200 OK", [("Content-Type", "Text/Event-Stream")])
        return Content(b"data: 1\n\n")

    middleware = limited(app, limit)
    streams = [middleware(environ(), lambda *head: None) for _ in range(3)]
    assert limit.in_flight == 0
    for stream in streams:
        stream.close()
    assert len(limit.ends) == 3


def test_a_response_that_takes_long_after_its_head_gives_its_place_back(clock):
    limit = Limit(queue_target=1000.0)

    def app(environ, start_response):
        start_response("200 OK", [])
        return Content(b"x")

    middleware = limited(app, limit)
    slow = middleware(environ(), lambda *head: None)
    with Server(middleware) as server:
        answer = server.get()
        until(lambda: limit.state.queued == 1)
        assert limit.in_flight == 1
        clock.now += PATIENCE
        assert answer.result(10)[0] == "200 OK"
    slow.close()
    assert limit.in_flight == 0
    assert len(limit.ends) == 2


def test_a_request_that_is_interrupted_while_it_waits_gives_its_place_back(monkeypatch):
    app, limit = App(), Limit()

    class Interrupted(wsgi_concurrency._Request):
        class Woken:
            def acquire(self, timeout=None):
                raise Stop

            def release(self):
                pass

        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.woken = self.Woken()

    monkeypatch.setattr(wsgi_concurrency, "_Request", Interrupted)
    with Server(limited(app, limit)) as server:
        first = server.get()
        until(lambda: app.calls)
        with pytest.raises(Stop):
            server.get().result(10)
        assert counts(limit) == (1, 0)
        app.released.set()
        first.result(10)


def test_the_limit_is_awakened_when_it_wants_to_be(clock):
    class Sleepy(Limit):
        def queue(self, request, *, now):
            decisions = super().queue(request, now=now)
            self.wakeup = now + 0.01
            return decisions

        def awake(self, *, now):
            request = self.requests[-1]
            super().leave(request, now=now)
            self.wakeup = float("inf")
            return (Decision(request, starts=False, retry_after=7.2),)

    app, limit = App(), Sleepy()
    with Server(limited(app, limit)) as server:
        first = server.get()
        until(lambda: app.calls)
        second = server.get()
        until(lambda: limit.state.queued == 1)
        assert not second.done()
        clock.now += 0.01
        assert second.result(10)[1]["Retry-After"] == "8"
        app.released.set()
        first.result(10)


def test_a_rule_comes_before_the_limit():
    limit = Limit()
    gatekeeper = Gatekeeper.embedded([Domain("shop", (Rule.parse("1/h"),))])
    app = App()
    app.released.set()
    with Server(limited(app, limit, gatekeeper=gatekeeper)) as server:
        statuses = [server.get().result(10)[0][:3] for _ in range(2)]
    assert statuses == ["200", "503"]
    assert [domain for domain, _, _ in limit.ends] == ["shop"]


def test_priorities_are_those_of_domains_and_none_takes_no_place():
    app, limit = App(), Limit()
    routes = Routes([Route("api", path_prefix="/api/"), Route("health", path_prefix="/health")])
    priority = {"api": "automated", "health": None}
    with Server(limited(app, limit, domain=routes, priority=priority)) as server:
        answers = [server.get("/")]
        until(lambda: app.calls == ["/"])
        answers.append(server.get("/api/"))
        until(lambda: limit.state.queued == 1)
        answers.append(server.get("/health"))
        until(lambda: app.calls == ["/", "/health"])
        app.released.set()
        assert [answer.result(10)[0] for answer in answers] == ["200 OK"] * 3
    assert [(request.domain, request.priority, request.flow) for request in limit.requests] == [
        ("api", "automated", b"192.0.2.1")
    ]


def test_the_log_says_that_requests_are_refused(clock, caplog):
    app, limit = App(), Limit(queue=0)
    with Server(limited(app, limit)) as server:
        first = server.get()
        until(lambda: app.calls)
        for _ in range(2):
            assert server.get().result(10)[0][:3] == "503"
            clock.now += 1.0
        app.released.set()
        first.result(10)
    assert [record.message for record in caplog.records] == [
        "concurrency limit: refuses requests (limit 1, 1 in flight, 0 wait, 1 refused so far)"
    ]


@pytest.mark.parametrize(
    ("settings", "threads", "expected"),
    [
        ({"max": 8}, 32, {"max": 8, "queue": 23}),
        ({"max": 8, "queue": 4}, 32, {"max": 8, "queue": 4}),
        ({"max": 7}, 8, {"max": 7, "queue": 0}),
        ({}, 64, {"max": "learned", "queue": 16, "ceiling": 47, "floor": 4}),
        ({}, 4, {"max": "learned", "queue": 1, "ceiling": 2, "floor": 2}),
        ({}, 2, {"max": "learned", "queue": 0, "ceiling": 1, "floor": 1}),
        ({"ceiling": 10, "queue": 3}, 64, {"max": "learned", "queue": 3, "ceiling": 10, "floor": 4}),
    ],
)
def test_one_thread_is_left_for_refusals(settings, threads, expected):
    fitted = fit_threads(ConcurrencySettings(**settings), threads)
    assert {name: getattr(fitted, name) for name in expected} == expected
    most = fitted.ceiling if fitted.max == "learned" else fitted.max
    assert most + fitted.queue <= threads - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": ConcurrencySettings(max=8)}, "threads must be .* got None"),
        ({"concurrency": ConcurrencySettings(max=8), "threads": 1}, "2 or more"),
        ({"concurrency": ConcurrencySettings(max=8), "threads": 8}, "max must be below the number of threads"),
        ({"concurrency": Limit(), "threads": 8}, "concurrency must be ConcurrencySettings"),
        ({}, "got None"),
    ],
)
def test_invalid_arguments_are_errors_of_configuration(options, message):
    with pytest.raises(ConfigurationError, match=message):
        GatekeeperMiddleware(App(), **options)


def test_a_limit_that_is_off_is_none():
    settings = ConcurrencySettings(mode="off")
    assert GatekeeperMiddleware(App(), concurrency=settings, threads=8).concurrency is None


def test_many_threads_lose_no_place():
    """Each request is in flight at most once, and never more than the limit allows."""
    limit, running, most = Limit(3, queue_target=1000.0), [0], [0]
    guard = threading.Lock()

    def app(environ, start_response):
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0)
        start_response("200 OK", [])
        with guard:
            running[0] -= 1
        return Content(b"x") if environ["PATH_INFO"] == "/c" else [b"x"]

    with Server(limited(app, limit)) as server:
        answers = [server.get("/c" if number % 2 else "/") for number in range(1000)]
        assert {answer.result(30)[0] for answer in answers} == {"200 OK"}
    assert counts(limit) == (0, 0)
    assert len(limit.ends) == 1000
    assert 1 <= most[0] <= 3
