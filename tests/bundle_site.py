"""A bundle to read over HTTP, and a server with scripted responses."""

import asyncio
import gzip
import io
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.model import Location

SITE = "https://site.example"
PAGE = b"<title>plain</title>" + b"\n" * 200
LARGE = bytes(range(256)) * 2048  # 512 KiB
SERVED = {"Content-Type": "application/webbundle;v=b1", "X-Content-Type-Options": "nosniff", "ETag": '"one"'}


def make_bundle(*, large: bytes = LARGE) -> bytes:
    """Write a bundle with a response of each kind; the one at /broken is refused."""
    target = io.BytesIO()
    with BundleWriter(target, version="b1", primary_url=f"{SITE}/", manifest_url=f"{SITE}/manifest") as writer:
        writer.add(f"{SITE}/", headers={"Content-Type": "text/html", "ETag": '"page"'}, payload=b"<p>home")
        writer.add(f"{SITE}/manifest", headers={"Content-Type": "application/manifest+json"}, payload=b"{}")
        writer.add(f"{SITE}/moved", status=301, headers={"Content-Type": "text/plain", "Location": "/"})
        writer.add(f"{SITE}/coded", headers=coded("gzip"), payload=gzip.compress(PAGE, mtime=0))
        for key, headers, payload in [
            ("gzip", coded("gzip"), gzip.compress(PAGE, mtime=0)),
            ("identity", {"Content-Type": "text/html"}, PAGE),
        ]:
            writer.add(
                f"{SITE}/page",
                headers=headers,
                payload=payload,
                variants="Accept-Encoding;gzip;identity",
                variant_key=key,
            )
        writer.add(f"{SITE}/large", headers={"Content-Type": "application/octet-stream"}, payload=large)
        writer.add(f"{SITE}/broken", headers={"Content-Type": "text/plain"}, payload=b"never seen")
        writer.add(f"{SITE}/last", headers={"Content-Type": "text/plain"}, payload=b"the last")
    content = bytearray(target.getvalue())
    with open_bundle(bytes(content)) as bundle:
        location = bundle.metadata.requests[f"{SITE}/broken"]
    assert isinstance(location, Location)
    content[location.offset] = 0x83
    return bytes(content)


def coded(coding: str) -> dict[str, str]:
    """Return the headers of a page in a content coding."""
    return {"Content-Type": "text/html", "Content-Encoding": coding}


@dataclass
class Request:
    """A request as it was received."""

    path: str
    fields: dict[str, str]
    method: str = "GET"


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A server with scripted responses; `requests` has all requests."""

    answer: Answer
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it closes, or the answer did not say how long it is."""
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                    method, path, _ = head[0].split(" ")
                    fields = dict(line.split(": ", 1) for line in head[1:] if line)
                    request = Request(path, {name.lower(): value for name, value in fields.items()}, method)
                    self.requests.append(request)
                    await self.answer(request, writer)
                    await writer.drain()
        finally:
            writer.close()


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    """Run a server in a thread, until the block ends."""
    server = Server(answer)
    ready = threading.Event()
    done: list[Callable[[], object]] = []

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        done.append(lambda: loop.call_soon_threadsafe(stop.set))
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listening.close()
        for _ in range(5):
            await asyncio.sleep(0)  # connections that were accepted just now get their handlers
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(10)
        yield server
    finally:
        done[0]()
        thread.join(10)
        assert not thread.is_alive()


def head(status: int, fields: dict[str, str]) -> bytes:
    """Write a response's head."""
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def honest(content: bytes, **changed: str) -> Answer:
    """Serve a bundle as it should be; `changed` fields override, an empty one is left out (`X_Y` for X-Y)."""
    over = {name.replace("_", "-"): value for name, value in changed.items()}

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        fields = {name: value for name, value in {**SERVED, **over}.items() if value}
        writer.write(head(200, {**fields, "Content-Length": str(len(content))}) + content)

    return answer
