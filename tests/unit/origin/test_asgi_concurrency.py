import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from headgate.errors import ConfigurationError
from headgate.limit import ConcurrencyLimit, ConcurrencySettings, DelayUntil, Domain, Gatekeeper, Rule
from headgate.limit.concurrency import Decision, Outcome
from headgate.origin import Rejections, Route, Routes, asgi_concurrency
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.concurrency import LOOK_INTERVAL, PATIENCE

DISCONNECT = {"type": "http.disconnect"}
BODY = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]


class Clock:
    """The clock of the middleware: advances only when a test says so, so that no request waits for too long."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(asgi_concurrency, "monotonic", clock)
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


class App:
    """Answers when it is released; a request of the path /stream is answered by a stream at once."""

    def __init__(self) -> None:
        self.running = 0
        self.calls: list[str] = []
        self.read: list[Any] = []
        self.released = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope["path"])
        self.running += 1
        try:
            if scope["path"] == "/stream":
                fields = [(b"x", b"y"), (b"content-type", b"text/event-stream; charset=utf-8")]
                await send({"type": "http.response.start", "status": 200, "headers": fields})
            elif scope["path"] == "/begun":
                await send({"type": "http.response.start", "status": 200, "headers": []})
            elif scope["path"] == "/body":
                while not self.read or self.read[-1].get("more_body"):
                    self.read.append(await receive())
            await self.released.wait()
            if scope["path"] not in ("/stream", "/begun"):
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})
        finally:
            self.running -= 1


class Client:
    """One request of a client, in a task, and the server's half of its connection."""

    def __init__(self, middleware: Any, path: str = "/", *messages: Any, **scope: Any) -> None:
        self.messages = list(messages or [{"type": "http.request", "body": b""}])
        self.gone = asyncio.Event()
        self.complete: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sent: list[Any] = []
        whole = {"type": "http", "method": "GET", "path": path, "headers": [], "client": ("192.0.2.1", 4000), **scope}
        self.task = asyncio.ensure_future(middleware(whole, self.receive, self.send))

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def fields(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    async def receive(self) -> Any:
        if self.messages:
            return self.messages.pop(0)
        gone = asyncio.ensure_future(self.gone.wait())
        await asyncio.wait((gone, self.complete), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if self.complete.done() and not self.gone.is_set():
            message, self.complete = self.complete.result(), asyncio.get_running_loop().create_future()
            return message
        return DISCONNECT

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], *, step: float = 0.001) -> None:
    """Wait until a condition holds, in steps of so many seconds."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(step)
    pytest.fail("the condition did not become true")


def counts(limit: ConcurrencyLimit) -> tuple[int, int]:
    return limit.state.in_flight, limit.state.queued


def test_a_limit_needs_no_gatekeeper_and_refuses_what_finds_no_place():
    async def main():
        app, limit = App(), Limit(queue=0)
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        first = Client(middleware)
        await settle()
        second = Client(middleware)
        await second.task
        app.released.set()
        await first.task
        return app, limit, first, second

    app, limit, first, second = asyncio.run(main())
    assert app.calls == ["/"]
    assert first.status == 200
    assert second.status == 503
    seconds = second.fields[b"retry-after"]
    assert int(seconds) >= 1
    assert second.fields[b"ratelimit"] == b'"concurrency";r=0;t=' + seconds
    assert second.fields[b"cache-control"] == b"no-store"
    assert b"busy" in second.sent[1]["body"]
    assert counts(limit) == (0, 0)


def test_a_refusal_has_the_status_of_rejections_and_the_form_that_the_client_prefers():
    async def main():
        middleware = GatekeeperMiddleware(App(), concurrency=Limit(queue=0), rejections=Rejections(status=429))
        first = Client(middleware)
        await settle()
        second = Client(middleware, headers=[(b"accept", b"application/json")])
        await second.task
        first.task.cancel()
        return second

    second = asyncio.run(main())
    assert second.status == 429
    assert json.loads(second.sent[1]["body"])["status"] == 429


def test_settings_make_a_limit_and_the_middleware_has_its_state():
    async def main():
        middleware = GatekeeperMiddleware(App(), concurrency=ConcurrencySettings(max=7))
        client = Client(middleware)
        await settle()
        state = middleware.concurrency.state
        client.task.cancel()
        return state

    state = asyncio.run(main())
    assert (state.limit, state.in_flight, state.queued) == (7.0, 1, 0)


def test_a_limit_that_is_off_is_none():
    middleware = GatekeeperMiddleware(App(), gatekeeper=Gatekeeper(), concurrency=ConcurrencySettings(mode="off"))
    assert middleware.concurrency is None


def test_a_queued_request_starts_when_another_ends_and_has_its_whole_body():
    async def main():
        app, limit = App(), Limit()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        first = Client(middleware)
        await settle()
        second = Client(middleware, "/body", *BODY)
        await settle()
        assert counts(limit) == (1, 1)
        app.released.set()
        await asyncio.gather(first.task, second.task)
        return app, limit, second

    app, limit, second = asyncio.run(main())
    assert app.read == BODY
    assert second.status == 200
    assert counts(limit) == (0, 0)


def test_a_waiting_client_that_leaves_gives_its_place_in_the_queue_back():
    async def main():
        app, limit = App(), Limit(queue=1)
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        first = Client(middleware)
        await settle()
        second = Client(middleware)
        await settle()
        second.gone.set()
        await second.task
        assert counts(limit) == (1, 0)
        first.task.cancel()
        await settle()
        return app, limit, second

    app, limit, second = asyncio.run(main())
    assert app.calls == ["/"]
    assert second.sent == []
    assert counts(limit) == (0, 0)


@pytest.mark.parametrize("in_queue", [True, False])
def test_a_request_that_the_server_cancels_gives_its_place_back(in_queue):
    async def main():
        app, limit = App(), Limit()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        clients = [Client(middleware), Client(middleware)]
        await settle()
        clients[in_queue].task.cancel()
        await settle()
        assert counts(limit) == (1, 0)
        assert app.running == 1
        app.released.set()
        await settle()
        return limit

    limit = asyncio.run(main())
    assert counts(limit) == (0, 0)
    assert len(limit.ends) == (1 if in_queue else 2)
    if not in_queue:
        assert limit.ends[0][2] is Outcome.UNKNOWN


def test_a_request_that_is_cancelled_when_it_was_to_start_gives_its_place_back():
    async def main():
        app, limit = App(), Limit()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        first = Client(middleware)
        await settle()
        second = Client(middleware)
        await settle()
        app.released.set()
        await until(lambda: not limit.state.queued, step=0.0)
        assert limit.in_flight == 1
        second.task.cancel()
        await settle()
        return app, limit, first

    app, limit, first = asyncio.run(main())
    assert app.calls == ["/"]
    assert first.task.done()
    assert counts(limit) == (0, 0)
    assert limit.ends[1][2] is Outcome.UNKNOWN


class Stop(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError, Outcome.ANSWERED), (TimeoutError, Outcome.TIMED_OUT), (Stop, Outcome.UNKNOWN)],
)
def test_an_application_that_raises_gives_its_place_back(error, outcome, clock):
    async def main():
        limit = Limit()

        async def app(scope, receive, send):
            clock.now += 0.25
            raise error

        with pytest.raises(error):
            await GatekeeperMiddleware(app, concurrency=limit)({"type": "http", "path": "/", "headers": []}, None, None)
        return limit

    limit = asyncio.run(main())
    assert limit.in_flight == 0
    assert limit.ends == [("", 0.25, outcome)]


def test_an_error_after_the_head_is_an_answer(clock):
    async def main():
        limit = Limit()

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise TimeoutError

        client = Client(GatekeeperMiddleware(app, concurrency=limit))
        with pytest.raises(TimeoutError):
            await client.task
        return limit

    assert asyncio.run(main()).ends == [("", 0.0, Outcome.ANSWERED)]


def test_an_application_that_returns_without_a_response_says_nothing_of_the_load():
    async def main():
        limit = Limit()

        async def app(scope, receive, send):
            pass

        await Client(GatekeeperMiddleware(app, concurrency=limit)).task
        return limit

    assert asyncio.run(main()).ends == [("", 0.0, Outcome.UNKNOWN)]


def test_the_latency_ends_with_the_head_and_the_place_with_the_return_of_the_application(clock):
    async def main():
        limit, in_flight = Limit(), []

        async def app(scope, receive, send):
            clock.now += 0.5
            await send({"type": "http.response.start", "status": 200, "headers": []})
            clock.now += 0.25
            await send({"type": "http.response.body", "body": b""})
            in_flight.append(limit.in_flight)

        await Client(GatekeeperMiddleware(app, concurrency=limit)).task
        return limit, in_flight

    limit, in_flight = asyncio.run(main())
    assert limit.ends == [("", 0.5, Outcome.ANSWERED)]
    assert in_flight == [1]
    assert limit.in_flight == 0


def test_waiting_in_the_queue_is_no_part_of_the_latency(clock):
    async def main():
        app, limit = App(), Limit(queue_target=1000.0)
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        clients = [Client(middleware), Client(middleware)]
        await settle()
        clock.now += 0.5
        app.released.set()
        await asyncio.gather(*(client.task for client in clients))
        return limit

    assert [latency for _, latency, _ in asyncio.run(main()).ends] == [0.5, 0.0]


def test_an_event_stream_gives_its_place_back_at_once():
    async def main():
        app, limit = App(), Limit()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        clients = [Client(middleware, "/stream"), Client(middleware, "/stream"), Client(middleware, "/begun")]
        await settle()
        assert counts(limit) == (1, 0)
        assert app.running == 3
        app.released.set()
        await asyncio.gather(*(client.task for client in clients))
        return limit

    limit = asyncio.run(main())
    assert limit.in_flight == 0
    assert len(limit.ends) == 3


def test_a_response_that_takes_long_after_its_head_gives_its_place_back(clock, monkeypatch):
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)

    async def main():
        app, limit = App(), Limit(3)
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        clients = [Client(middleware, "/begun"), Client(middleware, "/")]
        await settle()
        clock.now += 0.75 * PATIENCE
        clients.append(Client(middleware, "/begun"))
        await asyncio.sleep(0.02)
        assert limit.in_flight == 3
        clock.now += 0.5 * PATIENCE
        await until(lambda: limit.in_flight != 3)
        assert app.running == 3
        app.released.set()
        await asyncio.gather(*(client.task for client in clients))
        return limit

    limit = asyncio.run(asyncio.wait_for(main(), 10))
    assert limit.in_flight == 0
    assert len(limit.ends) == 3


def test_a_slow_request_body_lends_its_place(clock, monkeypatch):
    """And takes it back when it is complete, whatever the limit is; its latency is that of the application."""
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)

    async def main():
        app, limit = App(), Limit()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        slow = Client(middleware, "/body", BODY[0])
        await settle()
        clock.now += 0.5 * PATIENCE
        await asyncio.sleep(0.02)
        assert limit.in_flight == 1
        clock.now += 0.5 * PATIENCE
        await until(lambda: limit.in_flight == 0)
        fast = Client(middleware)
        await settle()
        assert app.calls == ["/body", "/"]
        slow.complete.set_result(BODY[1])
        await settle()
        assert limit.in_flight == 2
        clock.now += 0.25
        app.released.set()
        await asyncio.gather(slow.task, fast.task)
        return app, limit

    app, limit = asyncio.run(asyncio.wait_for(main(), 10))
    assert app.read == BODY
    assert limit.ends == [("", 0.0, Outcome.UNKNOWN), ("", 0.25, Outcome.ANSWERED), ("", 0.25, Outcome.ANSWERED)]
    assert limit.in_flight == 0


@pytest.mark.parametrize("ends", ["response", "cancel"])
def test_a_lent_place_is_not_given_back_again(ends, clock, monkeypatch):
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)

    async def main():
        limit = Limit()

        async def app(scope, receive, send):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(receive(), 0.1)
            await send({"type": "http.response.start", "status": 413, "headers": []})
            clock.now += PATIENCE
            await asyncio.sleep(0.01)

        middleware = GatekeeperMiddleware(app, concurrency=limit)
        slow = Client(middleware, "/body")
        slow.messages.clear()
        await settle()
        clock.now += PATIENCE
        await until(lambda: limit.in_flight == 0)
        if ends == "cancel":
            slow.task.cancel()
        await asyncio.wait((slow.task,))
        return limit

    limit = asyncio.run(asyncio.wait_for(main(), 10))
    assert limit.in_flight == 0
    assert len(limit.ends) == 1


def test_an_application_that_waits_for_the_disconnect_holds_its_place(clock, monkeypatch):
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)

    async def main():
        limit = Limit()

        async def app(scope, receive, send):
            await receive()
            await receive()

        client = Client(GatekeeperMiddleware(app, concurrency=limit))
        await settle()
        clock.now += 2 * PATIENCE
        await asyncio.sleep(0.02)
        assert limit.in_flight == 1
        client.gone.set()
        await client.task
        return limit

    assert asyncio.run(main()).in_flight == 0


def test_a_websocket_takes_no_place():
    async def main():
        app, limit = App(), Limit()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        sockets = [Client(middleware, type="websocket") for _ in range(5)]
        await settle()
        assert app.running == 5
        assert counts(limit) == (0, 0)
        for client in sockets:
            client.task.cancel()

    asyncio.run(main())


def test_a_rule_comes_before_the_limit():
    async def main():
        app, limit = App(), Limit()
        gatekeeper = Gatekeeper.embedded([Domain("shop", (Rule.parse("1/h burst 2"),))])
        middleware = GatekeeperMiddleware(app, gatekeeper=gatekeeper, concurrency=limit)
        clients = [Client(middleware), Client(middleware), Client(middleware)]
        await settle()
        assert counts(limit) == (1, 1)
        app.released.set()
        await asyncio.gather(*(client.task for client in clients))
        return limit, [client.fields.get(b"ratelimit", b"")[:6] for client in clients]

    limit, fields = asyncio.run(main())
    assert fields == [b"", b"", b'"shop"']
    assert [domain for domain, _, _ in limit.ends] == ["shop", "shop"]
    assert limit.requests[0].flow == b"192.0.2.1"


def test_a_delayed_request_waits_for_a_place_too(monkeypatch):
    async def main():
        app, limit = App(), Limit()
        gatekeeper = Gatekeeper()
        middleware = GatekeeperMiddleware(app, gatekeeper=gatekeeper, concurrency=limit)
        first = Client(middleware)
        await settle()
        gatekeeper.obey(DelayUntil("default", b"192.0.2.1", time.time() + 0.05))
        second = Client(middleware, "/body", *BODY)
        await until(lambda: limit.state.queued == 1)
        app.released.set()
        await asyncio.gather(first.task, second.task)
        return app, limit

    app, limit = asyncio.run(asyncio.wait_for(main(), 10))
    assert app.read == BODY
    assert counts(limit) == (0, 0)


def test_without_a_gatekeeper_requests_have_the_domain_of_their_route():
    async def main():
        limit = Limit()
        routes = Routes([Route("api", path_prefix="/api/")])
        middleware = GatekeeperMiddleware(App(), concurrency=limit, domain=routes, priority={"api": "automated"})
        clients = [Client(middleware, path) for path in ("/", "/api/", "/")]
        await settle()
        for client in clients:
            client.task.cancel()
        await settle()
        return limit

    limit = asyncio.run(main())
    assert [(request.domain, request.priority, request.flow) for request in limit.requests] == [
        ("api", "automated", b"192.0.2.1"),
        ("", "people", b"192.0.2.1"),
    ]


@pytest.mark.parametrize("priority", [{"health": None}, lambda scope: None if scope["path"] == "/health" else "people"])
def test_a_request_without_a_priority_takes_no_place(priority):
    async def main():
        app, limit = App(), Limit()
        routes = Routes([Route("health", path_prefix="/health"), Route("rest")])
        middleware = GatekeeperMiddleware(app, concurrency=limit, domain=routes, priority=priority)
        clients = [Client(middleware, "/health"), Client(middleware), Client(middleware, "/health"), Client(middleware)]
        await settle()
        assert app.calls == ["/health", "/", "/health"]
        assert counts(limit) == (1, 1)
        for client in clients:
            client.task.cancel()

    asyncio.run(main())


def test_a_priority_that_a_callable_invents_is_an_error_of_every_request():
    async def main():
        client = Client(GatekeeperMiddleware(App(), concurrency=Limit(), priority=lambda scope: "robots"))
        with contextlib.suppress(asyncio.CancelledError):
            await client.task

    with pytest.raises(ConfigurationError, match="'people', 'verified', 'automated', 'prefetch'"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "got None; .* with concurrency"),
        ({"concurrency": 64}, "ConcurrencySettings\\(max=64\\)"),
        ({"concurrency": ConcurrencySettings(max=1), "gatekeeper": 5}, "gatekeeper must be a Gatekeeper"),
        ({"concurrency": ConcurrencySettings(max=1), "priority": {"x": "people"}, "domain": "a"}, "unknown domain 'x'"),
        ({"concurrency": ConcurrencySettings(max=1), "priority": {"a": "robots"}, "domain": "a"}, "got 'robots'"),
        ({"concurrency": ConcurrencySettings(max=1), "priority": 5}, "mapping or a callable"),
    ],
)
def test_invalid_arguments_are_errors_of_configuration(options, message):
    with pytest.raises(ConfigurationError, match=message):
        GatekeeperMiddleware(App(), **options)


def test_monitoring_refuses_nothing():
    async def main():
        app, limit = App(), Limit(queue=0, mode="monitor")
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        clients = [Client(middleware) for _ in range(5)]
        await settle()
        assert app.running == 5
        app.released.set()
        await asyncio.gather(*(client.task for client in clients))
        return limit

    assert counts(asyncio.run(main())) == (0, 0)


def test_requests_may_come_from_another_event_loop(clock):
    """As in tests of an application, of which each has an event loop of its own."""
    limit = Limit()
    middleware = None

    async def main():
        nonlocal middleware
        app = App()
        middleware = middleware or GatekeeperMiddleware(lambda *call: app(*call), concurrency=limit)
        clients = [Client(middleware), Client(middleware)]
        await settle()
        loop = asyncio.get_running_loop()
        assert middleware.concurrency._loop is loop
        for client in clients:
            client.task.cancel()
        await settle()

    for _ in range(2):
        asyncio.run(main())
    assert counts(limit) == (0, 0)


def test_the_timer_stops_when_nothing_is_in_flight(clock, monkeypatch):
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)

    async def main():
        app = App()
        app.released.set()
        middleware = GatekeeperMiddleware(app, concurrency=Limit())
        await Client(middleware).task
        clock.now += LOOK_INTERVAL
        await until(lambda: middleware.concurrency._timer is None)
        await Client(middleware).task
        assert middleware.concurrency._timer is not None

    asyncio.run(asyncio.wait_for(main(), 10))


def test_the_limit_is_awakened_when_it_wants_to_be(clock):
    class Sleepy(Limit):
        def __init__(self) -> None:
            super().__init__()
            self.awakened: list[float] = []

        def queue(self, request, *, now):
            decisions = super().queue(request, now=now)
            self.wakeup = now + 0.01
            return decisions

        def awake(self, *, now):
            self.awakened.append(now)
            request = self.requests[-1]
            super().leave(request, now=now)
            self.wakeup = float("inf")
            return (Decision(request, starts=False, retry_after=7.2),)

    async def main():
        app, limit = App(), Sleepy()
        middleware = GatekeeperMiddleware(app, concurrency=limit)
        first = Client(middleware)
        await settle()
        second = Client(middleware)
        await settle()
        assert limit.awakened == []
        clock.now += 0.01
        await second.task
        first.task.cancel()
        return limit, second

    limit, second = asyncio.run(asyncio.wait_for(main(), 10))
    assert limit.awakened == [1000.01]
    assert second.fields[b"retry-after"] == b"8"


def test_the_timer_goes_on_after_an_error_of_the_limit(clock, monkeypatch):
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)
    errors, lags = [], []

    class Broken(Limit):
        def lagged(self, seconds, *, now):
            lags.append(seconds)
            raise ValueError("broken")

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        client = Client(GatekeeperMiddleware(App(), concurrency=Broken()))
        await settle()
        clock.now += 1.0
        await until(lambda: len(lags) > 1)
        client.task.cancel()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert str(errors[0]) == "broken"


def test_the_log_says_when_refusals_begin_and_end(clock, monkeypatch, caplog):
    """The end also if no request comes after them."""
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)

    async def main():
        app = App()
        middleware = GatekeeperMiddleware(app, concurrency=Limit(queue=0))
        first = Client(middleware)
        await settle()
        await Client(middleware).task
        clock.now += 1.0
        await until(lambda: len(caplog.records) == 1)
        app.released.set()
        await first.task
        clock.now += 10.0
        await until(lambda: len(caplog.records) == 2)

    asyncio.run(asyncio.wait_for(main(), 10))
    figures = "(limit 1, {} in flight, 0 wait, 1 refused so far)"
    assert [record.message for record in caplog.records] == [
        f"concurrency limit: refuses requests {figures.format(1)}",
        f"concurrency limit: refuses no more requests {figures.format(0)}",
    ]


def test_a_slow_event_loop_is_reported_to_the_limit(clock, monkeypatch):
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)
    lags = []

    class Lagging(Limit):
        def lagged(self, seconds, *, now):
            lags.append(seconds)

    async def main():
        client = Client(GatekeeperMiddleware(App(), concurrency=Lagging()))
        await settle()
        clock.now += 0.2
        await until(lambda: lags != [])
        client.task.cancel()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert lags[0] == pytest.approx(0.199)
