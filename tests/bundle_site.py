"""A bundle to read over HTTP, a server with scripted responses, and readers by range for each kind of client."""

import asyncio
import gzip
import io
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import httpx2

from headgate.agent.bundle import AsyncRangeBundle, RangeBundle
from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.model import Location, Metadata, Response, VariantSet
from headgate.errors import ResponseError

SITE = "https://site.example"
PAGE = b"<title>plain</title>" + b"\n" * 200
LARGE = bytes(range(256)) * 2048  # 512 KiB
SERVED = {"Content-Type": "application/webbundle;v=b1", "X-Content-Type-Options": "nosniff", "ETag": '"one"'}

Responses = dict[str, Response | ResponseError]
"""By URL, and variant key where there is one."""


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

    def part(self, content: bytes) -> tuple[int, int] | None:
        """Return the first and last byte of the requested range; None without one."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.fields.get("range", ""))
        if found is None:
            return None
        first, last = found.groups()
        if not first:
            return max(0, len(content) - int(last)), len(content) - 1
        return int(first), min(int(last or len(content)), len(content) - 1)


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

    @property
    def ranges(self) -> list[str]:
        """The ranges asked for."""
        return [request.fields.get("range", "") for request in self.requests]

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
        part = request.part(content)
        if request.fields.get("if-range", fields.get("ETag")) != fields.get("ETag"):
            part = None
        if part is None:
            writer.write(head(200, {**fields, "Content-Length": str(len(content))}) + content)
            return
        first, last = part
        if first > last:
            fields = {"Content-Range": f"bytes */{len(content)}", "Content-Length": "0"}
            writer.write(head(416, fields))
            return
        body = content[first : last + 1]
        own = {"Content-Range": f"bytes {first}-{last}/{len(content)}", "Content-Length": str(len(body))}
        writer.write(head(206, {**own, **fields}) + body)

    return answer


def range_transport(content: bytes, *, ranges: bool = True) -> httpx2.MockTransport:
    """Serve a bundle in memory, by range or always whole."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        part = Request(request.url.path, dict(request.headers)).part(content) if ranges else None
        if part is None:
            return httpx2.Response(200, headers=SERVED, stream=httpx2.ByteStream(content))
        first, last = part
        if first > last:
            return httpx2.Response(416, headers={"Content-Range": f"bytes */{len(content)}"})
        fields = {**SERVED, "Content-Range": f"bytes {first}-{last}/{len(content)}"}
        return httpx2.Response(206, headers=fields, stream=httpx2.ByteStream(content[first : last + 1]))

    return httpx2.MockTransport(answer)


class Reading:
    """Reads bundles by range with one kind of client of one library."""

    def __init__(self, library: ModuleType, is_async: bool) -> None:
        self.library = library
        self.is_async = is_async

    def open(self, url: str, **options: Any) -> Metadata:
        """Open and close the bundle, with a client of its own."""
        if not self.is_async:
            with RangeBundle.open(url, **options) as bundle:
                return bundle.metadata

        async def opened() -> Metadata:
            async with await AsyncRangeBundle.open(url, **options) as bundle:
                return bundle.metadata

        return asyncio.run(opened())

    def all(self, url: str, **options: Any) -> Responses:
        """Return every response, which is loaded and streamed, or its error."""
        if self.is_async:
            return asyncio.run(self._aall(url, options))
        found: Responses = {}
        with self.library.Client() as client, RangeBundle.open(url, client=client, **options) as bundle:
            for name, location in _locations(bundle.metadata):
                try:
                    found[name] = whole = bundle.load(location)
                    with bundle.stream(location) as streamed:
                        assert b"".join(streamed.chunks) == whole.payload
                        assert (streamed.status, streamed.headers) == (whole.status, whole.headers)
                        assert streamed.length == len(whole.payload)
                except ResponseError as error:
                    found[name] = error
        return found

    async def _aall(self, url: str, options: dict[str, Any]) -> Responses:
        found: Responses = {}
        async with (
            self.library.AsyncClient() as client,
            await AsyncRangeBundle.open(url, client=client, **options) as bundle,
        ):
            for name, location in _locations(bundle.metadata):
                try:
                    found[name] = whole = await bundle.load(location)
                    async with bundle.stream(location) as streamed:
                        assert b"".join([chunk async for chunk in streamed.chunks]) == whole.payload
                except ResponseError as error:
                    found[name] = error
        return found


def read_file(content: bytes, **options: Any) -> Responses:
    """Return what the reader of files finds in the same bytes."""
    found: Responses = {}
    with open_bundle(content, **options) as bundle:
        for name, location in _locations(bundle.metadata):
            try:
                found[name] = bundle.load(location)
            except ResponseError as error:
                found[name] = error
    return found


def assert_same(found: Responses, expected: Responses) -> None:
    """Assert that two readers found the same responses and errors."""
    assert {name: _summary(response) for name, response in found.items()} == {
        name: _summary(response) for name, response in expected.items()
    }


def _summary(found: Response | ResponseError) -> tuple[object, ...]:
    if isinstance(found, ResponseError):
        return "error", found.reason, found.step, found.offset
    return found.status, dict(found.headers), bytes(found.payload)


def _locations(metadata: Metadata) -> Iterator[tuple[str, Location]]:
    for url, found in metadata.requests.items():
        if isinstance(found, VariantSet):
            yield from ((f"{url} {key}", location) for key, location in found.locations.items())
        else:
            yield url, found
