import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headgate.limit import ConcurrencySettings, DelayUntil, Gatekeeper
from headgate.limit.concurrency import Decision, Outcome
from headgate.origin import asgi_concurrency
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.concurrency import CLIENT_PATIENCE, LOOK_INTERVAL
from tests.unit.origin.middlewares import Clock, Limit

DISCONNECT = {"type": "http.disconnect"}
BODY = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own, for ten seconds at most."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 10))

    return run


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def looks_often(monkeypatch):
    """The middleware looks at slow clients and at the log a thousand times a second."""
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", 0.001)


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
                await receive()
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


@in_a_loop
async def test_settings_make_a_limit_and_the_middleware_has_its_state():
    middleware = GatekeeperMiddleware(App(), concurrency=ConcurrencySettings(max=7))
    client = Client(middleware)
    await settle()
    state = middleware.concurrency.state
    client.task.cancel()
    assert (state.limit, state.in_flight, state.queued) == (7.0, 1, 0)


@in_a_loop
async def test_a_queued_request_starts_when_another_ends_and_has_its_whole_body():
    app, limit = App(), Limit()
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    first = Client(middleware)
    await settle()
    second = Client(middleware, "/body", *BODY)
    await settle()
    assert limit.counts == (1, 1)
    app.released.set()
    await asyncio.gather(first.task, second.task)
    assert app.read == BODY
    assert second.status == 200
    assert limit.counts == (0, 0)


@in_a_loop
async def test_a_read_that_is_under_way_ends_with_its_request(clock):
    """That of a request which has waited, of one that was refused, and of one that was cancelled while delayed."""
    app, limit, gatekeeper = App(), Limit(queue=1), Gatekeeper()
    gatekeeper.obey(DelayUntil("default", b"192.0.2.2", time.time() + 4.0))
    middleware = GatekeeperMiddleware(app, concurrency=limit, gatekeeper=gatekeeper)
    delayed = Client(middleware, client=("192.0.2.2", 1))
    clients = [Client(middleware) for _ in range(3)]
    for client in (*clients, delayed):
        client.messages.clear()
    await settle()
    delayed.task.cancel()
    app.released.set()
    await asyncio.gather(*(client.task for client in clients))
    await settle()
    assert sorted(client.status for client in clients) == [200, 200, 503]
    assert [task for task in asyncio.all_tasks() if "_message" in repr(task)] == []


@in_a_loop
async def test_a_waiting_client_that_leaves_gives_its_place_in_the_queue_back():
    app, limit = App(), Limit(queue=1)
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    first = Client(middleware)
    await settle()
    second = Client(middleware)
    await settle()
    second.gone.set()
    await second.task
    assert limit.counts == (1, 0)
    first.task.cancel()
    await settle()
    assert app.calls == ["/"]
    assert second.sent == []
    assert limit.counts == (0, 0)


@pytest.mark.parametrize("in_queue", [True, False])
@in_a_loop
async def test_a_request_that_the_server_cancels_gives_its_place_back(in_queue):
    app, limit = App(), Limit()
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    clients = [Client(middleware), Client(middleware)]
    await settle()
    clients[in_queue].task.cancel()
    await settle()
    assert limit.counts == (1, 0)
    assert app.running == 1
    app.released.set()
    await settle()
    assert limit.counts == (0, 0)
    assert len(limit.ends) == (1 if in_queue else 2)
    if not in_queue:
        assert limit.ends[0][2] is Outcome.UNKNOWN


@in_a_loop
async def test_a_request_that_is_cancelled_when_it_was_to_start_gives_its_place_back():
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
    assert app.calls == ["/"]
    assert first.task.done()
    assert limit.counts == (0, 0)
    assert limit.ends[1][2] is Outcome.UNKNOWN


@in_a_loop
async def test_an_error_after_the_head_is_an_answer(clock):
    limit = Limit()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise TimeoutError

    client = Client(GatekeeperMiddleware(app, concurrency=limit))
    with pytest.raises(TimeoutError):
        await client.task
    assert limit.ends == [("", 0.0, Outcome.ANSWERED)]


@in_a_loop
async def test_an_application_that_returns_without_a_response_says_nothing_of_the_load():
    limit = Limit()

    async def app(scope, receive, send):
        pass

    await Client(GatekeeperMiddleware(app, concurrency=limit)).task
    assert limit.ends == [("", 0.0, Outcome.UNKNOWN)]


@in_a_loop
async def test_waiting_in_the_queue_is_no_part_of_the_latency(clock):
    app, limit = App(), Limit(queue_target=1000.0)
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    clients = [Client(middleware), Client(middleware)]
    await settle()
    clock.now += 0.5
    app.released.set()
    await asyncio.gather(*(client.task for client in clients))
    assert [latency for _, latency, _ in limit.ends] == [0.5, 0.0]


@in_a_loop
async def test_a_response_that_takes_long_after_its_head_gives_its_place_back(clock, looks_often):
    app, limit = App(), Limit(3)
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    clients = [Client(middleware, "/begun"), Client(middleware, "/")]
    await settle()
    clock.now += 0.75 * CLIENT_PATIENCE
    clients.append(Client(middleware, "/begun"))
    await asyncio.sleep(0.02)
    assert limit.in_flight == 3
    clock.now += 0.5 * CLIENT_PATIENCE
    await until(lambda: limit.in_flight != 3)
    assert limit.ends == [("", 0.0, Outcome.ANSWERED)]
    assert app.running == 3
    app.released.set()
    await asyncio.gather(*(client.task for client in clients))
    assert limit.in_flight == 0
    assert len(limit.ends) == 3


@in_a_loop
async def test_a_slow_request_body_lends_its_place(clock, looks_often):
    """And takes it back when it is complete, whatever the limit is; its latency is that of the application."""
    app, limit = App(), Limit()
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    slow = Client(middleware, "/body", BODY[0])
    await settle()
    clock.now += 0.5 * CLIENT_PATIENCE
    slow.complete.set_result(BODY[0])  # more of it: the patience does not begin anew
    await asyncio.sleep(0.02)
    assert limit.in_flight == 1
    clock.now += 0.5 * CLIENT_PATIENCE
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
    assert app.read == [BODY[0], *BODY]
    assert limit.ends == [("", 0.0, Outcome.UNKNOWN), ("", 0.25, Outcome.ANSWERED), ("", 0.25, Outcome.ANSWERED)]
    assert limit.in_flight == 0


@pytest.mark.parametrize("ends", ["response", "cancel"])
@in_a_loop
async def test_a_lent_place_is_not_given_back_again(ends, clock, looks_often):
    limit = Limit()

    async def app(scope, receive, send):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(receive(), 0.1)
        await send({"type": "http.response.start", "status": 413, "headers": []})
        clock.now += CLIENT_PATIENCE
        await asyncio.sleep(0.01)

    middleware = GatekeeperMiddleware(app, concurrency=limit)
    slow = Client(middleware, "/body")
    slow.messages.clear()
    await settle()
    clock.now += CLIENT_PATIENCE
    await until(lambda: limit.in_flight == 0)
    if ends == "cancel":
        slow.task.cancel()
    await asyncio.wait((slow.task,))
    assert limit.in_flight == 0
    assert len(limit.ends) == 1


@in_a_loop
async def test_only_the_head_ends_the_latency(clock):
    limit = Limit()

    async def app(scope, receive, send):
        await send({"type": "http.response.debug", "info": {}})
        clock.now += 0.5
        await send({"type": "http.response.start", "status": 200, "headers": []})

    await Client(GatekeeperMiddleware(app, concurrency=limit)).task
    assert limit.ends == [("", 0.5, Outcome.ANSWERED)]


@in_a_loop
async def test_a_server_may_add_fields_to_a_refusal(clock):
    limit = Limit(queue=0)
    limit.start(now=clock.now)
    middleware = GatekeeperMiddleware(App(), concurrency=limit)
    for _ in range(2):
        client = Client(middleware)
        await client.task
        assert b"server" not in client.fields
        client.sent[0]["headers"].append((b"server", b"x"))


@in_a_loop
async def test_fields_that_can_be_read_only_once_reach_the_server():
    async def app(scope, receive, send):
        fields = (field for field in [(b"content-type", b"text/plain")])
        await send({"type": "http.response.start", "status": 200, "headers": fields})

    client = Client(GatekeeperMiddleware(app, concurrency=Limit()))
    await client.task
    assert client.fields == {b"content-type": b"text/plain"}


@in_a_loop
async def test_a_task_that_reads_the_body_after_the_end_takes_no_place(clock, looks_often):
    limit, tasks = Limit(), []

    async def app(scope, receive, send):
        tasks.append(asyncio.ensure_future(receive()))
        await until(lambda: limit.in_flight == 0)

    client = Client(GatekeeperMiddleware(app, concurrency=limit), "/body")
    client.messages.clear()
    await settle()
    clock.now += CLIENT_PATIENCE
    await client.task
    client.complete.set_result(BODY[1])
    await tasks[0]
    assert limit.in_flight == 0


@in_a_loop
async def test_an_application_that_waits_for_the_disconnect_holds_its_place(clock, looks_often):
    limit = Limit()

    async def app(scope, receive, send):
        await receive()
        await receive()

    client = Client(GatekeeperMiddleware(app, concurrency=limit))
    await settle()
    clock.now += 2 * CLIENT_PATIENCE
    await asyncio.sleep(0.02)
    assert limit.in_flight == 1
    client.gone.set()
    await client.task
    assert limit.in_flight == 0


@in_a_loop
async def test_a_websocket_takes_no_place():
    app, limit = App(), Limit()
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    sockets = [Client(middleware, type="websocket") for _ in range(5)]
    await settle()
    assert app.running == 5
    assert limit.counts == (0, 0)
    for client in sockets:
        client.task.cancel()


@in_a_loop
async def test_a_delayed_request_waits_for_a_place_too():
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
    assert app.read == BODY
    assert limit.counts == (0, 0)


@in_a_loop
async def test_monitoring_refuses_nothing():
    app, limit = App(), Limit(queue=0, mode="monitor")
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    clients = [Client(middleware) for _ in range(5)]
    await settle()
    assert app.running == 5
    app.released.set()
    await asyncio.gather(*(client.task for client in clients))
    assert limit.counts == (0, 0)


@pytest.mark.parametrize("others_wait", [True, False])
def test_requests_may_come_from_another_event_loop(clock, looks_often, others_wait):
    """As in tests of an application, of which each has an event loop of its own: slow bodies lend their places."""
    limit = Limit(2)
    app = None
    middleware = GatekeeperMiddleware(lambda *call: app(*call), concurrency=limit)

    async def main():
        nonlocal app
        app = App()
        slow = [Client(middleware, "/body", BODY[0]) for _ in range(2 if others_wait else 1)]
        await settle()
        if not others_wait:
            clock.now += 1.0  # the timer of the former loop is overdue
        slow.append(Client(middleware))
        await settle()
        assert limit.counts == (2, int(others_wait))
        clock.now += 1.0
        await until(lambda: limit.counts == (1, 0))  # that of the request without a body
        for client in slow:
            client.task.cancel()
        await settle()
        assert limit.counts == (0, 0)

    for _ in range(2):
        asyncio.run(main())


@in_a_loop
async def test_the_timer_stops_when_nothing_is_in_flight(clock, looks_often):
    app = App()
    app.released.set()
    middleware = GatekeeperMiddleware(app, concurrency=Limit())
    await Client(middleware).task
    clock.now += LOOK_INTERVAL
    await until(lambda: middleware.concurrency._timer is None)
    await Client(middleware).task
    assert middleware.concurrency._timer is not None


@in_a_loop
async def test_the_limit_is_awakened_when_it_wants_to_be(clock):
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

    app, limit = App(), Sleepy()
    middleware = GatekeeperMiddleware(app, concurrency=limit)
    first = Client(middleware)
    await settle()
    timer = middleware.concurrency._timer
    second = Client(middleware)
    await settle()
    assert timer.cancelled()
    assert limit.awakened == []
    clock.now += 0.01
    await second.task
    first.task.cancel()
    assert limit.awakened == [1000.01]
    assert second.fields[b"retry-after"] == b"8"


@pytest.mark.parametrize(("look_interval", "seconds"), [(1000.0, 0.0), (0.001, 5.0)])
@in_a_loop
async def test_the_end_of_a_request_can_bring_the_wakeup_forward(clock, monkeypatch, look_interval, seconds):
    """Which is due although nothing is in flight."""
    monkeypatch.setattr(asgi_concurrency, "LOOK_INTERVAL", look_interval)
    woken = asyncio.Event()

    class Waking(Limit):
        def end(self, domain, latency, outcome, *, now):
            super().end(domain, latency, outcome, now=now)
            self.wakeup = now + seconds
            return ()

        def awake(self, *, now):
            self.wakeup = float("inf")
            woken.set()
            return ()

    app = App()
    app.released.set()
    await Client(GatekeeperMiddleware(app, concurrency=Waking())).task
    await asyncio.sleep(0.02)  # looks go on
    clock.now += seconds
    await woken.wait()


@in_a_loop
async def test_the_timer_goes_on_after_an_error_of_the_limit(clock, looks_often):
    errors, lags = [], []

    class Broken(Limit):
        def lagged(self, seconds):
            lags.append(seconds)
            raise ValueError("broken")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    client = Client(GatekeeperMiddleware(App(), concurrency=Broken()))
    await settle()
    clock.now += 1.0
    await until(lambda: len(lags) > 1)
    client.task.cancel()
    assert str(errors[0]) == "broken"


@in_a_loop
async def test_the_log_says_when_refusals_begin_and_end(clock, looks_often, caplog):
    """The end also if no request comes after them."""
    app = App()
    middleware = GatekeeperMiddleware(app, concurrency=Limit(queue=0))
    first = Client(middleware)
    await settle()
    await Client(middleware).task
    clock.now += 1.0
    await until(lambda: len(caplog.records) == 1)
    app.released.set()
    await first.task
    await asyncio.sleep(0.02)  # looks go on although nothing is in flight
    clock.now += 10.0
    await until(lambda: len(caplog.records) == 2)
    figures = "(limit 1, {} in flight, 0 wait, 1 refused so far)"
    assert [record.message for record in caplog.records] == [
        f"concurrency limit: refuses requests {figures.format(1)}",
        f"concurrency limit: refuses no more requests {figures.format(0)}",
    ]


@in_a_loop
async def test_a_slow_event_loop_is_reported_to_the_limit(clock, looks_often):
    lags = []

    class Lagging(Limit):
        def lagged(self, seconds):
            lags.append(seconds)

    client = Client(GatekeeperMiddleware(App(), concurrency=Lagging()))
    await settle()
    clock.now += 0.2
    await until(lambda: lags != [])
    client.task.cancel()
    assert lags[0] == pytest.approx(0.199)
