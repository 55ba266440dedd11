import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencySettings
from headgate.limit.concurrency import ConcurrencyLimit, Decision, Outcome
from headgate.origin import wsgi_concurrency
from headgate.origin.concurrency import CLIENT_PATIENCE
from headgate.origin.wsgi import GatekeeperMiddleware
from headgate.origin.wsgi_concurrency import fit_threads
from tests.unit.origin.middlewares import Clock, Limit, Stop, environ


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    return Clock(monkeypatch)


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
    middleware.concurrency._limit = limit
    return middleware


def until(condition: Any) -> None:
    """Wait until a condition holds."""
    for _ in range(5000):
        if condition():
            return
        time.sleep(0.001)
    pytest.fail("the condition did not become true")


def test_a_queued_request_starts_when_another_ends(clock):
    app, limit = App(), Limit(queue=5, queue_target=1000.0)
    with Server(limited(app, limit)) as server:
        answers = [server.get("/first")]
        until(lambda: app.calls)
        answers += [server.get("/second"), server.get("/third")]
        until(lambda: limit.counts == (1, 2))
        assert app.calls == ["/first"]
        clock.now += 0.5
        app.released.set()
        assert [answer.result(10)[0] for answer in answers] == ["200 OK"] * 3
    assert limit.counts == (0, 0)
    assert [latency for _, latency, _ in limit.ends] == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("type_", [list, tuple])
def test_whole_content_is_returned_as_it_is(type_):
    limit = Limit()
    content = type_([b"a"])

    app = answering(content)
    assert limited(app, limit)(environ(), lambda *head: None) is content
    assert limit.ends == [("", 0.0, Outcome.ANSWERED)]


def test_a_file_of_the_server_is_returned_as_it_is():
    limit = Limit()
    content = Content()

    app = answering(content)
    request = {**environ(), "wsgi.file_wrapper": Content}
    assert limited(app, limit)(request, lambda *head: None) is content
    assert limit.in_flight == 0


def test_a_file_wrapper_that_is_a_function_is_no_type_of_content():
    """As in uWSGI."""
    limit, content = Limit(), Content(b"a")

    app = answering(content)
    returned = limited(app, limit)({**environ(), "wsgi.file_wrapper": len}, lambda *head: None)
    assert list(returned) == [b"a"]
    returned.close()
    assert (limit.in_flight, content.closed) == (0, 1)


def test_a_refusal_of_head_has_no_content(clock):
    limit = Limit(queue=0)
    limit.start(now=clock.now)
    with Server(limited(App(), limit)) as server:
        status, fields, body = server.get(REQUEST_METHOD="HEAD").result(10)
    assert (status, body) == ("503 Service Unavailable", b"")
    assert int(fields["Content-Length"]) > 0


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


def test_a_response_that_takes_long_after_its_head_gives_its_place_back(clock):
    limit = Limit(queue_target=1000.0)

    app = answering(Content(b"x"))
    middleware = limited(app, limit)
    slow = middleware(environ(), lambda *head: None)
    with Server(middleware) as server:
        answer = server.get()
        until(lambda: limit.state.queued == 1)
        assert limit.in_flight == 1
        clock.now += CLIENT_PATIENCE
        assert answer.result(10)[0] == "200 OK"
    slow.close()
    assert limit.in_flight == 0
    assert len(limit.ends) == 2


class SlowBody:
    """The body of a request, whose first byte is followed by the others when its client is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.is_awaited = False
        self.parts = [b"a", b"bc\n", b""]
        self.name = "of the server"

    def read(self, *size: int | None) -> bytes:
        if size == (0,):
            return b""
        if len(self.parts) == 2:
            self.is_awaited = True
            assert self.released.wait(10)
        return self.parts.pop(0)

    readline = read1 = read

    def readinto(self, buffer: bytearray) -> int:
        data = self.read()
        buffer[: len(data)] = data
        return len(data)


def read_into(body: Any) -> bytes:
    """Read a body as Werkzeug does, if the stream of the server can do that."""
    data = b""
    while size := body.readinto(buffer := bytearray(9)):
        data += buffer[:size]
    return data


READERS = {
    "read": lambda body: body.read(0) + body.read(1) + body.read(3) + body.read(1),
    "read1": lambda body: body.read1(1) + body.read1(3) + body.read1(1),
    "readinto": read_into,
    "next": lambda body: next(body) + next(body) + next(body, b""),
    "readline": lambda body: body.readline() + body.readline() + body.readline(9),
    "readlines": lambda body: b"".join(body.readlines()),
    "iteration": lambda body: b"".join(body),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("fields", [{"CONTENT_LENGTH": "4"}, {"HTTP_TRANSFER_ENCODING": "chunked"}])
def test_a_slow_request_body_lends_its_place(clock, read, fields):
    limit, body = Limit(queue_target=1000.0), SlowBody()
    in_flight = []

    def app(request: Any, start_response: Any) -> Any:
        content = read(request["wsgi.input"]) if request["PATH_INFO"] == "/slow" else b""
        in_flight.append(limit.in_flight)
        clock.now += 2.0
        start_response("200 OK", [])
        return [content]

    with Server(limited(app, limit)) as server:
        slow = server.get("/slow", **{"wsgi.input": body, **fields})
        until(lambda: body.is_awaited)
        other = server.get("/other")
        until(lambda: limit.state.queued == 1)
        clock.now += CLIENT_PATIENCE
        assert other.result(10)[0] == "200 OK"
        assert limit.in_flight == 0
        body.released.set()
        assert slow.result(10)[2] == b"abc\n"
    assert in_flight == [1, 1]
    assert limit.counts == (0, 0)
    assert limit.ends == [("", 0.0, Outcome.UNKNOWN), ("", 2.0, Outcome.ANSWERED), ("", 2.0, Outcome.ANSWERED)]


@pytest.mark.parametrize(
    "sizes",
    [(1, 3), (1, 3, 1), (1, -1), (1, None)],
    ids=["by its length", "by its end", "since all is read", "since all is read, again"],
)
def test_a_request_whose_body_is_complete_holds_its_place(clock, sizes):
    limit, body, works = Limit(queue_target=1000.0), SlowBody(), App()
    body.released.set()
    fields = {"CONTENT_LENGTH": "4"} if sizes == (1, 3) else {"HTTP_TRANSFER_ENCODING": "chunked"}

    def app(request: Any, start_response: Any) -> Any:
        for size in sizes if request["PATH_INFO"] == "/slow" else ():
            request["wsgi.input"].read(size)
        return works(request, start_response)

    middleware = limited(app, limit)
    with Server(middleware) as server:
        server.get("/slow", **{"wsgi.input": body, **fields})
        until(lambda: works.calls)
        server.get("/other")
        until(lambda: limit.state.queued == 1)
        clock.now += CLIENT_PATIENCE
        until(lambda: middleware.concurrency._look_at > clock.now)
        assert limit.counts == (1, 1)
        works.released.set()
    assert len(limit.ends) == 2


def test_a_slow_request_body_lends_its_place_without_a_queue(clock):
    limit, body = Limit(queue=0), SlowBody()

    def app(request: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return [request["wsgi.input"].read(1) + request["wsgi.input"].read(3)] if "CONTENT_LENGTH" in request else []

    with Server(limited(app, limit)) as server:
        slow = server.get("/slow", **{"wsgi.input": body, "CONTENT_LENGTH": "4"})
        until(lambda: body.is_awaited)
        clock.now += CLIENT_PATIENCE
        assert server.get("/other").result(10)[0] == "200 OK"
        body.released.set()
        slow.result(10)
    assert limit.counts == (0, 0)


def test_the_time_for_which_a_failed_body_was_awaited_is_not_the_applications(clock):
    limit, body = Limit(), SlowBody()

    def fail(*_size: int) -> bytes:
        clock.now += 0.4
        raise ConnectionResetError

    body.read = fail  # type: ignore[method-assign]

    def app(request: Any, start_response: Any) -> Any:
        request["wsgi.input"].read(1)

    with pytest.raises(ConnectionResetError):
        limited(app, limit)(environ(CONTENT_LENGTH="4", **{"wsgi.input": body}), lambda *head: None)
    assert [latency for _, latency, _ in limit.ends] == [pytest.approx(0.0)]


def test_a_request_whose_body_fails_is_in_flight_again(clock):
    limit, body, in_flight = Limit(queue_target=1000.0), SlowBody(), []
    wait = body.read

    def fail(*size: int) -> bytes:
        wait(*size)
        raise ConnectionResetError

    def app(request: Any, start_response: Any) -> Any:
        if request["PATH_INFO"] == "/slow":
            request["wsgi.input"].read(1)
            body.read = fail  # type: ignore[method-assign]
            with pytest.raises(ConnectionResetError):
                request["wsgi.input"].read(1)
            in_flight.append(limit.in_flight)  # the application goes on without the rest
        start_response("200 OK", [])
        return [b""]

    with Server(limited(app, limit)) as server:
        slow = server.get("/slow", **{"wsgi.input": body, "CONTENT_LENGTH": "9"})
        until(lambda: body.is_awaited)
        clock.now += CLIENT_PATIENCE
        assert server.get("/other").result(10)[0] == "200 OK"
        body.released.set()
        assert slow.result(10)[0] == "200 OK"
    assert in_flight == [1]
    assert limit.counts == (0, 0)


def test_lines_are_read_until_they_have_as_many_bytes_as_asked_for():
    lines = []

    def app(request: Any, start_response: Any) -> Any:
        lines.append(request["wsgi.input"].readlines(1))
        lines.append(request["wsgi.input"].readlines(None))
        start_response("200 OK", [])
        return []

    body = SlowBody()
    body.released.set()
    limited(app, Limit())(environ(CONTENT_LENGTH="4", **{"wsgi.input": body}), lambda *head: None)
    assert lines == [[b"a"], [b"bc\n"]]


def test_a_body_that_is_read_after_the_end_takes_no_place(clock):
    limit, body, kept = Limit(queue_target=1000.0), SlowBody(), []

    def app(request: Any, start_response: Any) -> Any:
        kept.append(request["wsgi.input"])
        kept[0].read(1)
        start_response("200 OK", [])
        return [b""]

    middleware = limited(app, limit)
    middleware(environ(CONTENT_LENGTH="4", **{"wsgi.input": body}), lambda *head: None)
    assert limit.in_flight == 0
    body.released.set()
    assert kept[0].read() == b"bc\n"
    assert limit.in_flight == 0
    assert kept[0].name == "of the server"


def test_a_body_whose_client_leaves_gives_its_place_back_once(clock):
    limit, body, kept = Limit(queue_target=1000.0), SlowBody(), []

    def app(request: Any, start_response: Any) -> Any:
        if request["PATH_INFO"] == "/slow":
            kept.append(request["wsgi.input"])
            kept[0].read(1)
            kept[0].read(3)
            raise ConnectionResetError
        start_response("200 OK", [])
        return [b""]

    with Server(limited(app, limit)) as server:
        slow = server.get("/slow", **{"wsgi.input": body, "CONTENT_LENGTH": "9"})
        until(lambda: body.is_awaited)
        other = server.get("/other")
        until(lambda: limit.state.queued == 1)
        clock.now += CLIENT_PATIENCE
        assert other.result(10)[0] == "200 OK"
        body.released.set()
        with pytest.raises(ConnectionResetError):
            slow.result(10)
    assert kept[0].read(1) == b""
    assert limit.counts == (0, 0)
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
        assert limit.counts == (1, 0)
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


def test_requests_write_what_the_log_should_say(clock, caplog):
    limit, app = Limit(queue=0), App()
    app.released.set()
    limit.start(now=clock.now)
    with Server(limited(app, limit)) as server:
        assert server.get().result(10)[0][:3] == "503"
        limit.end("", 0.1, Outcome.ANSWERED, now=clock.now)
        for _ in range(2):
            clock.now += 10.0
            assert server.get().result(10)[0][:3] == "200"
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "concurrency limit: refuses requests",
        "concurrency limit: refuses no more requests",
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
