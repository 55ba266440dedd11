import asyncio
import os
from typing import Any

import pytest

from headgate.origin.bundle import BundleApp
from tests.webbundles import PAGE

LONG = b"0123456789abcdef" * 50_000
ZEROCOPY, PATHSEND = "http.response.zerocopysend", "http.response.pathsend"


class Server:
    """The server's half: what it is sent, and whether the agent is gone after so many pieces."""

    def __init__(self, *, gone_after: int | None = None) -> None:
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.gone_after = gone_after
        self.requests = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive(self) -> Any:
        if self.requests:
            return self.requests.pop(0)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if len(self.sent) - 1 == self.gone_after:
            self.gone.set()
        await asyncio.sleep(0)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def fields(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])


def scope(path: str = "/", *fields: tuple[bytes, bytes], method: str = "GET", **more: Any) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": list(fields), "query_string": b"", **more}


def serve(app: BundleApp, request: dict[str, Any], **options: Any) -> Server:
    async def once() -> Server:
        server = Server(**options)
        await asyncio.wait_for(app(request, server.receive, server.send), 10)
        return server

    return asyncio.run(once())


@pytest.fixture
def long(bundle):
    return bundle(
        {"url": "/", "payload": PAGE}, {"url": "/long", "payload": LONG}, {"url": "/q?a=%20b", "payload": b"q"}
    )


def test_long_content_is_sent_in_pieces_of_256_kib(long):
    pieces = serve(BundleApp(long, unpack=True), scope("/long")).sent[1:]
    assert [len(piece["body"]) for piece in pieces] == [262_144] * 3 + [13_568]
    assert [piece["more_body"] for piece in pieces] == [True] * 3 + [False]


def test_reading_stops_after_a_disconnect(long):
    assert len(serve(BundleApp(long), scope("/"), gone_after=2).sent) in {3, 4}


async def test_zerocopysend_extension_is_used_for_parts(long):
    app = BundleApp(long, unpack=True)
    request = scope("/long", (b"range", b"bytes=100000-299999"), extensions={ZEROCOPY: {}, PATHSEND: {}})
    server = Server()
    await app(request, server.receive, server.send)
    start, part = server.sent
    assert start["status"] == 206
    assert part["type"] == ZEROCOPY
    assert part["count"] == 200_000
    assert os.pread(part["file"].fileno(), part["count"], part["offset"]) == LONG[100_000:300_000]


def test_pathsend_extension_is_used_for_whole_files(long):
    app = BundleApp(long)
    whole = serve(app, scope("/", extensions={PATHSEND: {}})).sent[1:]
    assert whole == [{"type": PATHSEND, "path": str(long)}]
    part = serve(app, scope("/", (b"range", b"bytes=1-"), extensions={PATHSEND: {}}))
    assert part.body == long.read_bytes()[1:]
    # Another file at that path is not what the fields are about.
    content = long.read_bytes()
    app._bundle._check_at = float("inf")
    long.with_suffix(".new").write_bytes(b"x" * len(content))
    long.with_suffix(".new").rename(long)
    assert serve(app, scope("/", extensions={PATHSEND: {}})).body == content
    long.unlink()
    assert serve(app, scope("/", extensions={PATHSEND: {}})).body == content


@pytest.mark.parametrize(
    ("path", "raw_path", "root_path"),
    [
        ("/site.wbn", b"/site.wbn", ""),
        ("/site.wbn", None, ""),
        ("/a b/site.wbn", b"/a%20b/site.wbn", "/a b"),
        ("/a b/site.wbn", None, "/a b"),
        ("/mounted", b"/mounted", "/mounted"),
        ("/~x/site.wbn", b"/%7Ex/site.wbn", "/~x"),
        ("/mounted/", b"/mounted/", "/mounted"),
        ("", b"", ""),
    ],
)
def test_application_can_be_mounted_below_a_path(bundle, path, raw_path, root_path):
    app = BundleApp(bundle())
    assert serve(app, scope(path, raw_path=raw_path, root_path=root_path)).status == 200
    assert serve(app, scope(path + "x", raw_path=raw_path and raw_path + b"x", root_path=root_path)).status == 404


async def test_truncation_during_sending_is_an_error(long):
    app = BundleApp(long)
    server = Server()

    async def send(message: Any) -> None:
        await server.send(message)
        os.truncate(long, 1000)

    with pytest.raises(OSError, match="written to"):
        await app(scope(), server.receive, send)
    assert not any(message.get("more_body") is False for message in server.sent[1:])


async def test_lifespan_is_completed_and_websockets_are_closed(bundle):
    app = BundleApp(bundle())
    server = Server()
    server.requests = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    await app({"type": "lifespan"}, server.receive, server.send)
    assert [message["type"] for message in server.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    server = Server()
    server.requests = [{"type": "websocket.connect"}]
    await app({"type": "websocket"}, server.receive, server.send)
    assert server.sent == [{"type": "websocket.close", "code": 1000}]
