import asyncio
import time
from typing import Any

import pytest

from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Rule
from headgate.origin import Rejections
from headgate.origin.asgi import GatekeeperMiddleware, _info
from headgate.release import NEVER, Status
from tests.quotes import quotes

PEER = b"192.0.2.1"
DISCONNECT = {"type": "http.disconnect"}
BODY = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}]


def scope(kind: str = "http", **more: Any) -> dict[str, Any]:
    return {"type": kind, "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.1", 4000), **more}


class Server:
    """The server's half of one connection: gives `messages`, then waits until `gone`; keeps what is sent."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self.reads = 0

    async def receive(self) -> Any:
        self.reads += 1
        await asyncio.sleep(0)
        if self.messages:
            return self.messages.pop(0)
        await self.gone.wait()
        return DISCONNECT

    async def send(self, message: Any) -> None:
        self.sent.append(message)


class App:
    """Reads a body to its end and remembers it."""

    def __init__(self) -> None:
        self.calls = 0
        self.read: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        if scope["type"] == "lifespan":
            return
        while not self.read or self.read[-1].get("more_body"):
            self.read.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})


class Held(Gatekeeper):
    """A gatekeeper for which the peer is held, which remembers the requests that left."""

    def __init__(self, release: float, **options: Any) -> None:
        super().__init__(**options)
        self.obey(DelayUntil("default", PEER, release))
        self.left: list[Accounting] = []

    def cancel(self, accounting: Accounting) -> None:
        self.left.append(accounting)
        super().cancel(accounting)


def held_for(seconds: float, **options: Any) -> Held:
    """The middleware reads the wall clock; so does this, once."""
    return Held(time.time() + seconds, **options)


def serve(app: App, gatekeeper: Gatekeeper, server: Server, request: Any = None, **options: Any) -> None:
    async def once() -> None:
        middleware = GatekeeperMiddleware(app, gatekeeper=gatekeeper, **options)
        await asyncio.wait_for(middleware(request or scope(), server.receive, server.send), 10)

    asyncio.run(once())


def test_an_accepted_request_gets_the_servers_own_callables():
    seen = []

    async def app(scope, receive, send):
        seen.append((receive, send))

    server = Server()
    gatekeeper = Gatekeeper()
    asyncio.run(GatekeeperMiddleware(app, gatekeeper=gatekeeper)(scope(), server.receive, server.send))
    assert seen == [(server.receive, server.send)]
    assert gatekeeper.totals["default"].accepted == 1


def test_repeated_identifying_header_falls_back_to_address():
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/h burst 1"),))])
    statuses = []
    for number in range(3):
        fields = [(b"x-api-key", b"alice"), (b"x-api-key", b"junk%d" % number)]
        server = Server(*BODY)
        serve(App(), gatekeeper, server, scope(headers=fields), identify="header:X-Api-Key")
        statuses.append(server.sent[0]["status"])
    assert statuses == [200, 503, 503]
    server = Server(*BODY)
    serve(App(), gatekeeper, server, scope(headers=fields[:1]), identify="header:X-Api-Key")
    assert server.sent[0]["status"] == 200


@pytest.mark.parametrize("kind", ["lifespan", "something.new"])
def test_other_scopes_pass_and_are_not_counted(kind):
    app, gatekeeper = App(), Gatekeeper()
    app.read = [DISCONNECT]
    serve(app, gatekeeper, Server(), {"type": kind})
    assert app.calls == 1
    assert gatekeeper.totals == {}


def test_an_unlimited_request_is_not_counted():
    app, gatekeeper = App(), Gatekeeper()
    serve(app, gatekeeper, Server(*BODY), domain=lambda scope: None)
    assert app.calls == 1
    assert gatekeeper.totals == {}


@quotes(
    "smockron Protocol",
    'a request is "delayed" by keeping the client connection open, but delaying the presentation of the request to the '
    "resource until a later time.",
)
def test_a_delayed_request_arrives_with_its_whole_body_in_order():
    app, gatekeeper, server = App(), held_for(0.1), Server(*BODY)
    serve(app, gatekeeper, server)
    assert app.read == BODY
    assert gatekeeper.totals["default"].delayed == 1
    assert gatekeeper.left == []
    assert server.sent[0]["status"] == 200


def test_a_read_under_way_at_the_release_is_passed_to_the_application():
    """The application asks once more and gets the disconnect that the early read was waiting for."""
    seen = []

    async def app(scope, receive, send):
        seen.append(await receive())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.01)
        server.gone.set()
        seen.extend([await receive(), await receive()])

    server = Server({"type": "http.request", "body": b"x"})
    serve(app, held_for(0.1), server)  # type: ignore[arg-type]  # any application will do
    assert seen == [{"type": "http.request", "body": b"x"}, DISCONNECT, DISCONNECT]
    assert server.reads == 3


@pytest.mark.parametrize("messages", [[], BODY, BODY[:1]])
def test_a_client_that_leaves_while_delayed_frees_its_slot(messages):
    app, gatekeeper = App(), held_for(4.0)
    server = Server(*messages, DISCONNECT)
    serve(app, gatekeeper, server)
    assert app.calls == 0
    assert server.sent == []
    assert [accounting.status for accounting in gatekeeper.left] == [Status.DELAYED]
    assert gatekeeper.delayed == 0


async def test_a_delayed_request_that_the_server_cancels_frees_its_slot():
    app, gatekeeper, server = App(), held_for(4.0), Server()
    task = asyncio.ensure_future(GatekeeperMiddleware(app, gatekeeper=gatekeeper)(scope(), server.receive, server.send))
    await asyncio.wait((task,), timeout=0.05)
    assert gatekeeper.delayed == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert app.calls == 0
    assert gatekeeper.delayed == 0


def test_a_delayed_request_reads_a_bounded_part_of_its_body_early():
    big = {"type": "http.request", "body": b"x" * 40_000, "more_body": True}
    app, server = App(), Server(*[big] * 10, BODY[1])
    reads_before = []

    class Watching(App):
        async def __call__(self, scope, receive, send):
            reads_before.append(server.reads)
            await super().__call__(scope, receive, send)

    app = Watching()
    serve(app, held_for(0.1), server)
    assert reads_before == [2]
    assert app.read == [big] * 10 + [BODY[1]]


def test_an_error_of_the_server_while_delayed_is_raised_and_frees_the_slot():
    app, gatekeeper, server = App(), held_for(4.0), Server()

    async def broken() -> Any:
        raise OSError("gone")

    server.receive = broken  # type: ignore[method-assign]  # the server fails
    with pytest.raises(OSError, match="gone"):
        serve(app, gatekeeper, server)
    assert gatekeeper.delayed == 0


@quotes(
    "smockron Protocol",
    'A request is "rejected" by sending the client a 503 "Service Unavailable" response (optionally with a Retry-After '
    "header indicating a later time at which a request would be acceptable), and preventing the request from reaching "
    "the resource.",
)
def test_a_rejected_request_is_answered_here():
    app, server = App(), Server(*BODY)
    gatekeeper = Gatekeeper.embedded([Domain("default", (Rule.parse("1/h burst 1"),))])
    serve(App(), gatekeeper, Server(*BODY))
    serve(app, gatekeeper, server, scope(headers=[(b"accept", b"application/problem+json")]))
    assert app.calls == 0
    start, body = server.sent
    fields = dict(start["headers"])
    assert start["status"] == 503
    assert fields[b"retry-after"] == b"3600"
    assert fields[b"ratelimit-policy"] == b'"default";q=1;w=3600'
    assert fields[b"ratelimit"] == b'"default";r=0;t=3600'
    assert fields[b"content-type"] == b"application/problem+json"
    assert len(body["body"]) == int(fields[b"content-length"])


def test_rejections_can_be_replaced():
    server = Server()
    serve(App(), Held(NEVER), server, rejections=Rejections(status=429))
    assert server.sent[0]["status"] == 429


def test_a_websocket_is_rejected_with_a_response_where_the_server_can():
    server = Server({"type": "websocket.connect"})
    serve(App(), Held(NEVER), server, scope("websocket", extensions={"websocket.http.response": {}}))
    assert [message["type"] for message in server.sent] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    assert server.sent[0]["status"] == 503


@pytest.mark.parametrize("extensions", [{}, {"extensions": {}}, {"extensions": None}])
def test_a_websocket_is_closed_before_it_is_accepted_where_the_server_cannot(extensions):
    server = Server({"type": "websocket.connect"})
    serve(App(), Held(NEVER), server, scope("websocket", **extensions))
    assert server.sent == [{"type": "websocket.close", "code": 1013, "reason": "too many requests"}]
    assert server.reads == 1


def test_a_delayed_websocket_still_sees_its_connect():
    app = App()
    serve(app, held_for(0.1), Server({"type": "websocket.connect"}), scope("websocket"))
    assert app.read == [{"type": "websocket.connect"}]


def test_a_websocket_client_that_leaves_while_delayed_frees_its_slot():
    app, gatekeeper = App(), held_for(4.0)
    serve(app, gatekeeper, Server({"type": "websocket.connect"}, {"type": "websocket.disconnect"}), scope("websocket"))
    assert app.calls == 0
    assert gatekeeper.delayed == 0


@pytest.mark.parametrize(
    ("more", "path"),
    [({"raw_path": b"/%61"}, b"/%61"), ({"path": "/50%61"}, b"/50%2561"), ({"path": "/é"}, "/é".encode())],
)
def test_the_path_is_read_as_sent(more, path):
    assert _info(scope(**more)).path == path


@pytest.mark.parametrize("client", [None, ("", 0), (None, None)])
def test_a_peer_without_an_address_is_served_too(client):
    gatekeeper = Gatekeeper()
    serve(App(), gatekeeper, Server(*BODY), scope(client=client))
    assert _info(scope(client=client)).peer == ""
    assert gatekeeper.totals["default"].accepted == 1


def test_a_clock_that_is_set_back_does_not_prolong_a_delay(monkeypatch):
    """Where the wait depended on the wall clock, the request would wait for an hour: longer than `serve` allows."""
    now, app, server = time.time(), App(), Server(*BODY)
    gatekeeper = Held(now + 0.1)
    readings = iter([now])
    monkeypatch.setattr("time.time", lambda: next(readings, now - 3600.0))
    serve(app, gatekeeper, server)
    assert app.calls == 1


def test_no_read_stays_under_way_when_a_delayed_request_is_over():
    async def served() -> int:
        server = Server(*BODY[1:])
        await GatekeeperMiddleware(App(), gatekeeper=held_for(0.1))(scope(), server.receive, server.send)
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(served()) == 1
