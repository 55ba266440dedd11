"""The concurrency limit in the middlewares: no order of events loses a permit, or starts more than the limit allows."""

import asyncio
import threading
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from headgate.limit import ConcurrencyLimit, ConcurrencySettings
from headgate.origin import wsgi
from headgate.origin.asgi import GatekeeperMiddleware

MAX = 2
QUEUE = 3
KINDS = st.sampled_from(["arrive", "arrive", "arrive", "answer", "raise", "stream", "leave", "cancel"])
EVENTS = st.lists(st.tuples(KINDS, st.integers(0, 9), st.integers(0, 6)), max_size=40)
"""What happens, to which request, and how many turns of the event loop follow."""


class Request:
    """A request of a client, which an application answers when it is told how to."""

    def __init__(self) -> None:
        self.how: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self.task: asyncio.Task[None] | None = None

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


class World:
    """An application behind a limit, and its requests."""

    def __init__(self) -> None:
        self.limit = ConcurrencyLimit(ConcurrencySettings(max=MAX, queue=QUEUE), lambda: 0.5)
        self.middleware = GatekeeperMiddleware(self.app, concurrency=self.limit)
        self.requests: list[Request] = []
        self.holding: set[Request] = set()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        request = scope["request"]
        self.holding.add(request)
        assert len(self.holding) <= MAX
        try:
            how = await request.how
            if how == "raise":
                raise ValueError
            await send({"type": "http.response.start", "status": 200, "headers": []})
            if how == "stream":
                await request.gone.wait()
        finally:
            self.holding.discard(request)

    def happen(self, event: str, number: int) -> None:
        if event == "arrive":
            request = Request()
            scope = {"type": "http", "path": "/", "headers": [], "client": ("192.0.2.1", 1), "request": request}
            request.task = asyncio.ensure_future(self.middleware(scope, request.receive, request.send))
            self.requests.append(request)
        elif self.requests:
            request = self.requests[number % len(self.requests)]
            assert request.task is not None
            if event == "cancel":
                request.task.cancel()
            elif event == "leave":
                request.gone.set()
            elif not request.how.done():
                request.how.set_result(event)


async def asgi_run(events: list[tuple[str, int, int]]) -> None:
    world = World()
    for event, number, turns in events:
        world.happen(event, number)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert world.limit.in_flight <= MAX
        assert world.limit.state.queued <= QUEUE
    for number in range(len(world.requests)):
        world.happen("answer", number)
        world.happen("leave", number)
    tasks = [request.task for request in world.requests if request.task is not None]
    if tasks:
        done, pending = await asyncio.wait(tasks, timeout=20)
        assert not pending
        assert all(task.cancelled() or isinstance(task.exception(), ValueError | None) for task in done)
    assert (world.limit.in_flight, world.limit.state.queued) == (0, 0)
    assert world.holding == set()


@given(EVENTS)
def test_no_order_of_events_loses_a_permit_in_asgi(events):
    asyncio.run(asgi_run(events))


@given(st.lists(st.sampled_from(["whole", "generator", "raise", "abandon"]), max_size=24))
def test_no_order_of_events_loses_a_permit_in_wsgi(kinds):
    """Requests in threads, each with a kind of response; an abandoned one is closed before it is iterated over."""
    settings = ConcurrencySettings(max=MAX, queue=len(kinds))
    guard, running = threading.Lock(), [0]

    def app(environ: Any, start_response: Any) -> Any:
        with guard:
            running[0] += 1
            assert running[0] <= MAX
        try:
            if environ["kind"] == "raise":
                raise ValueError
            start_response("200 OK", [])
            return [b"x"] if environ["kind"] == "whole" else (chunk for chunk in (b"x", b"y"))
        finally:
            with guard:
                running[0] -= 1

    middleware = wsgi.GatekeeperMiddleware(app, concurrency=settings, threads=100)

    def serve(kind: str) -> None:
        try:
            content = middleware({"kind": kind, "REQUEST_METHOD": "GET"}, lambda *head: None)
        except ValueError:
            return
        if kind != "abandon":
            assert b"".join(content)
        getattr(content, "close", lambda: None)()

    threads = [threading.Thread(target=serve, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert middleware.concurrency is not None
    assert (middleware.concurrency.state.in_flight, middleware.concurrency.state.queued) == (0, 0)
