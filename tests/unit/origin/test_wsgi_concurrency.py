import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencySettings
from headgate.limit.concurrency import ConcurrencyLimit
from headgate.origin.wsgi import GatekeeperMiddleware
from headgate.origin.wsgi_concurrency import fit_threads
from tests.unit.origin.middlewares import Limit, Stop, environ, permits


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


def answering(content: Any) -> Any:
    """Return an application that sends its head, and returns this content."""

    def app(_environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return content

    return app


def limited(app: Any, limit: Limit, **options: Any) -> GatekeeperMiddleware:
    """A middleware with a limit of the test's own."""
    middleware = GatekeeperMiddleware(app, concurrency=ConcurrencySettings(max=1), threads=8, **options)
    assert middleware.concurrency is not None
    middleware.concurrency._permits = permits(limit)
    return middleware


def until(condition: Any) -> None:
    """Wait until a condition holds."""
    for _ in range(5000):
        if condition():
            return
        time.sleep(0.001)
    pytest.fail("the condition did not become true")


def test_a_queued_request_starts_when_another_ends():
    app, limit = App(), Limit(queue=5)
    with Server(limited(app, limit)) as server:
        answers = [server.get("/first")]
        until(lambda: app.calls)
        answers += [server.get("/second"), server.get("/third")]
        until(lambda: limit.counts == (1, 2))
        assert app.calls == ["/first"]
        limit.now += 0.5
        app.released.set()
        assert [answer.result(10)[0] for answer in answers] == ["200 OK"] * 3
    assert limit.counts == (0, 0)
    assert limit.latencies == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("type_", [list, tuple])
def test_whole_content_is_returned_as_it_is(type_):
    limit = Limit()
    content = type_([b"a"])

    app = answering(content)
    assert limited(app, limit)(environ(), lambda *head: None) is content
    assert (limit.latencies, limit.in_flight) == ([0.0], 0)


def test_content_holds_its_permit_until_it_is_closed():
    limit, content = Limit(), Content(b"a", b"b")

    def app(environ, start_response):
        limit.now += 0.5
        start_response("200 OK", [])
        limit.now += 0.25
        return content

    returned = limited(app, limit)(environ(), lambda *head: None)
    assert list(returned) == [b"a", b"b"]
    assert limit.in_flight == 1
    returned.close()
    assert content.closed == 1
    assert limit.latencies == [0.5]
    returned.close()
    assert limit.in_flight == 0


def test_a_generator_may_send_its_head_late():
    limit = Limit()

    def app(environ, start_response):
        limit.now += 0.5
        start_response("200 OK", [])
        yield b"a"

    content = limited(app, limit)(environ(), lambda *head: None)
    assert limit.in_flight == 1
    assert list(content) == [b"a"]
    content.close()
    assert limit.latencies == [0.5]


def test_content_that_is_closed_before_its_head_says_nothing_of_the_load():
    limit = Limit()

    def app(environ, start_response):
        start_response("200 OK", [])
        yield b"a"

    limited(app, limit)(environ(), lambda *head: None).close()
    assert (limit.latencies, limit.in_flight) == ([], 0)


def test_content_whose_close_raises_releases_its_permit():
    limit = Limit()

    class Broken(Content):
        def close(self):
            raise OSError("gone")

    app = answering(Broken())
    content = limited(app, limit)(environ(), lambda *head: None)
    with pytest.raises(OSError, match="gone"):
        content.close()
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


@pytest.mark.parametrize("fields", [{"CONTENT_LENGTH": "4"}, {"HTTP_TRANSFER_ENCODING": "chunked"}])
def test_the_latency_of_a_request_with_a_body_may_be_that_of_its_client(fields):
    limit = Limit()
    middleware = limited(answering([b"a"]), limit)
    middleware(environ(**fields), lambda *head: None)
    assert (limit.latencies, limit.in_flight) == ([], 0)
    middleware(environ(CONTENT_LENGTH="0"), lambda *head: None)
    assert limit.latencies == [0.0]


def test_a_request_that_is_interrupted_while_it_waits_leaves_the_queue():
    limit, calls = Limit(), []
    middleware = limited(answering([b"a"]), limit)
    limit.start()

    def clock():
        calls.append(limit.counts)
        if len(calls) == 2:
            raise Stop
        return limit.now

    middleware.concurrency._permits.clock = clock
    with pytest.raises(Stop):
        middleware(environ(), lambda *head: None)
    assert calls[1] == (1, 1)
    assert limit.counts == (1, 0)


def test_a_request_that_waits_too_long_under_overload_is_rejected():
    limit = Limit(1)
    limit._capacity = 1e5  # the spans of overload are those of requests of 10 microseconds
    limit.start()
    with Server(limited(answering([b"a"]), limit)) as server:
        waiting = server.get()
        until(lambda: limit.state.queued == 1)
        time.sleep(0.15)
        assert not waiting.done()
        limit.now += 1.0
        assert waiting.result(10)[0][:3] == "503"
    assert limit.state.rejected["people"]["waited"] == 1


@pytest.mark.parametrize(
    ("settings", "threads", "expected"),
    [
        ({"max": 8}, 32, {"max": 8, "queue": 23}),
        ({"max": 8, "queue": 4}, 32, {"max": 8, "queue": 4}),
        ({"max": 7}, 8, {"max": 7, "queue": 0}),
        ({}, 64, {"max": "learned", "queue": 16, "ceiling": 47}),
        ({}, 4, {"max": "learned", "queue": 1, "ceiling": 2}),
        ({}, 2, {"max": "learned", "queue": 0, "ceiling": 1}),
        ({"ceiling": 10, "queue": 3}, 64, {"max": "learned", "queue": 3, "ceiling": 10}),
    ],
)
def test_one_thread_is_left_for_rejections(settings, threads, expected):
    fitted = fit_threads(ConcurrencySettings(healthy_latency=1.0, **settings), threads)
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


def test_the_limit_is_called_by_one_thread_at_a_time(monkeypatch):
    calls, overlaps = [], []
    for name in ("start", "end"):
        original = getattr(ConcurrencyLimit, name)

        def slow(self, *arguments, original=original, **more):
            overlaps.extend(calls)
            calls.append(None)
            time.sleep(0.002)  # lets other threads run
            try:
                return original(self, *arguments, **more)
            finally:
                calls.pop()

        monkeypatch.setattr(ConcurrencyLimit, name, slow)
    app = GatekeeperMiddleware(answering([b"x"]), concurrency=ConcurrencySettings(max=8), threads=16)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: b"".join(app(environ(), lambda *_: None)), range(20)))
    assert results == [b"x"] * 20
    assert not overlaps
    assert app.concurrency.state.in_flight == 0
