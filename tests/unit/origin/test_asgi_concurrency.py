import asyncio
import time
from typing import Any

from headgate.limit import DelayUntil, Gatekeeper
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.origin.asgi_concurrency import _call_later
from tests.unit.origin.middlewares import Limit, permits

DISCONNECT = {"type": "http.disconnect"}
BODY = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]


def limited(app: Any, limit: Limit, **options: Any) -> Any:
    """A middleware with a limit by its own clock."""
    middleware = GatekeeperMiddleware(app, concurrency=limit, **options)
    assert middleware.concurrency is not None
    middleware.concurrency._permits = permits(limit, call_later=_call_later)
    return middleware


class App:
    """Answers when it is released; /begun sends its head at once, and /body reads its body."""

    def __init__(self) -> None:
        self.running = 0
        self.calls: list[str] = []
        self.read: list[Any] = []
        self.released = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope["path"])
        self.running += 1
        try:
            if scope["path"] == "/begun":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await receive()
            elif scope["path"] == "/body":
                while not self.read or self.read[-1].get("more_body"):
                    self.read.append(await receive())
            await self.released.wait()
            if scope["path"] != "/begun":
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


async def test_a_queued_request_starts_when_another_ends_and_has_its_whole_body():
    app, limit = App(), Limit()
    middleware = limited(app, limit)
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


async def test_a_read_that_is_under_way_ends_with_its_request():
    """That of a request which has waited, of one that was refused, and of one that was cancelled while delayed."""
    app, limit, gatekeeper = App(), Limit(queue=1), Gatekeeper()
    gatekeeper.obey(DelayUntil("default", b"192.0.2.2", time.time() + 4.0))
    middleware = limited(app, limit, gatekeeper=gatekeeper)
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
    assert [task for task in asyncio.all_tasks() if "Client.receive" in repr(task)] == []


async def test_an_application_that_returns_without_a_response_says_nothing_of_the_load():
    limit = Limit()

    async def app(scope, receive, send):
        await send({"type": "http.response.debug", "info": {}})

    await Client(limited(app, limit)).task
    assert (limit.latencies, limit.in_flight) == ([], 0)


async def test_the_wait_in_the_queue_and_for_the_request_body_is_no_part_of_the_latency():
    app, limit = App(), Limit()
    middleware = limited(app, limit)
    clients = [Client(middleware, "/body", BODY[0]), Client(middleware)]
    await settle()
    limit.now += 5.0
    clients[0].complete.set_result(BODY[1])
    await settle()
    limit.now += 0.5
    app.released.set()
    await asyncio.gather(*(client.task for client in clients))
    assert limit.latencies == [0.5, 0.0]


async def test_a_server_may_add_fields_to_a_rejection():
    limit = Limit(queue=0)
    limit.start()
    middleware = limited(App(), limit)
    for _ in range(2):
        client = Client(middleware)
        await client.task
        assert b"server" not in dict(client.sent[0]["headers"])
        client.sent[0]["headers"].append((b"server", b"x"))


async def test_a_websocket_needs_no_permit():
    app, limit = App(), Limit()
    middleware = limited(app, limit)
    sockets = [Client(middleware, type="websocket") for _ in range(5)]
    await settle()
    assert app.running == 5
    assert limit.counts == (0, 0)
    for client in sockets:
        client.task.cancel()


async def test_a_delayed_request_waits_for_a_permit_too():
    app, limit = App(), Limit()
    gatekeeper = Gatekeeper()
    middleware = limited(app, limit, gatekeeper=gatekeeper)
    first = Client(middleware)
    await settle()
    gatekeeper.obey(DelayUntil("default", b"192.0.2.1", time.time() + 0.05))
    second = Client(middleware, "/body", *BODY)
    while not limit.state.queued:  # noqa: ASYNC110  # there is no event
        await asyncio.sleep(0.001)
    app.released.set()
    await asyncio.gather(first.task, second.task)
    assert app.read == BODY
    assert limit.counts == (0, 0)


async def test_a_request_that_waits_too_long_under_overload_is_rejected_by_a_timer():
    app, limit = App(), Limit(1)
    limit._capacity = 1e5  # the spans of overload are those of requests of 10 microseconds
    middleware = GatekeeperMiddleware(app, concurrency=limit)  # by the clock of the machine
    first = Client(middleware)
    await settle()
    second = Client(middleware)
    await second.task
    assert second.status == 503
    assert limit.state.rejected["people"]["waited"] == 1
    first.task.cancel()


def test_requests_may_come_from_another_event_loop():
    """As in tests of an application, of which each has an event loop of its own."""
    limit = Limit(1)
    app = None
    middleware = GatekeeperMiddleware(lambda *call: app(*call), concurrency=limit)

    async def main():
        nonlocal app
        app = App()
        clients = [Client(middleware), Client(middleware)]
        await settle()
        assert limit.counts == (1, 1)
        app.released.set()
        await asyncio.gather(*(client.task for client in clients))
        assert limit.counts == (0, 0)

    for _ in range(2):
        asyncio.run(main())
