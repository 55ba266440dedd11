"""A gateway, an origin that follows a script, and a client that sends any bytes, in one event loop.

The origin records every byte it receives, connection by connection, whether its script reads them or not. The client
(`Agent`) reads responses with h11, which the gateway does not use.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import trustme

from headgate.config.origin_section import OriginSection
from headgate.config.tree import Gate, TlsSection
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import Rejections, Route, Routes, client_address
from headgate.origin.gateway import Gateway, GatewayPolicy, TlsKeys
from headgate.origin.gateway.listener import PLAIN

PATIENCE = 30.0  # seconds; reached only by a failing test

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connection(asyncio.StreamReaderProtocol):
    """One connection at the origin: `received` holds every byte, `ended` is set once it is over."""

    def __init__(self, origin: "ScriptedOrigin") -> None:
        self.reader = asyncio.StreamReader(limit=2**24)
        self.received = bytearray()
        self.ended = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None
        super().__init__(self.reader, origin.run_script)
        origin.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        super().connection_lost(exc)


class ScriptedOrigin:
    """An origin; `script` serves each of its connections and closes it by returning."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections: list[Connection] = []
        self.port = 0

    @property
    def received(self) -> bytes:
        """All bytes received, of all connections."""
        return b"".join(bytes(connection.received) for connection in self.connections)

    async def run_script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        next(connection for connection in self.connections if connection.reader is reader).writer = writer
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.script(reader, writer)
        writer.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one request's head and body, trusting its framing."""
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            assert await reader.readexactly(2) == b"\r\n"
        assert await reader.readexactly(2) == b"\r\n", "trailers are dropped"
        return head, body
    if b"content-length:" in lowered:
        length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
        return head, await reader.readexactly(length)
    return head, b""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request with what was received of it."""
    while True:
        head, body = await read_request(reader)
        content = head + body
        length = b"Content-Length: %d\r\n\r\n" % len(content)
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + (b"" if head.startswith(b"HEAD ") else content))


def respond_with(response: bytes, *, close: bool = False) -> Script:
    """Return a script that answers every request with the same bytes; with `close`, it closes after the first."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(response)
            if close:
                return

    return script


@asynccontextmanager
async def origin_running(script: Script = echo) -> AsyncIterator[ScriptedOrigin]:
    """Run an origin."""
    origin = ScriptedOrigin(script)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(origin), "127.0.0.1", 0)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()
        for _ in range(5):  # what was accepted last begins: a script that is cancelled before is an error of the loop
            await asyncio.sleep(0)
        tasks = [task for task in asyncio.all_tasks() if "run_script" in repr(task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_GATE_SETTINGS = {"timeouts", "bounds", "buffer_requests", "buffer_response"}
_SERVER_SETTINGS = {"allow", "concurrency", "observe"}


@asynccontextmanager
async def gateway_running(port: int, *, rule: str = "", **settings: Any) -> AsyncIterator[Gateway]:
    """Run a gateway before the origin at `port`, listening on a port of its own."""
    domain = Domain(name="default", rules=(Rule.parse(rule),) if rule else ())
    listener = settings.pop("listener", PLAIN)
    settings.setdefault("gatekeeper", Gatekeeper.embedded([domain], max_delay=5.0))
    settings.setdefault("identify", client_address())
    settings.setdefault("routes", Routes([Route("default")]))
    server = {name: settings.pop(name) for name in _SERVER_SETTINGS & settings.keys()}
    gate = Gate(**{name: settings.pop(name) for name in _GATE_SETTINGS & settings.keys()})
    policy = GatewayPolicy(reject=Rejections([domain]), **settings)
    gateway = Gateway([OriginSection(url=f"http://127.0.0.1:{port}")], policy, gate=gate, **server)
    await gateway.start("127.0.0.1", 0, listener=listener)
    try:
        yield gateway
    finally:
        await gateway.drain(0)


@asynccontextmanager
async def served(script: Script = echo, **settings: Any) -> AsyncIterator[tuple[ScriptedOrigin, Gateway]]:
    """Run an origin, and a gateway before it."""
    async with origin_running(script) as origin, gateway_running(origin.port, **settings) as gateway:
        yield origin, gateway


@dataclass
class Reply:
    """A response as h11 read it."""

    status: int
    fields: list[tuple[bytes, bytes]]
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def field(self, name: bytes) -> bytes | None:
        values = [value for field_name, value in self.fields if field_name == name]
        return b", ".join(values) if values else None


class Agent:
    """A client that sends bytes and reads responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.early = b""

    async def send(self, data: bytes, *, step: int = 0) -> None:
        """Send all at once, or `step` bytes at a time, each in a packet of its own."""
        with suppress(ConnectionError):
            for start in range(0, len(data), step or len(data) or 1):
                self.writer.write(data[start : start + (step or len(data))])
                await self.writer.drain()
                for _ in range(3 if step else 0):
                    await asyncio.sleep(0)

    async def ask(self, data: bytes, *, step: int = 0) -> Reply:
        """Send a request and read its response."""
        await self.send(data, step=step)
        return await self.response(data.split()[0])

    async def response(self, method: bytes = b"GET") -> Reply:
        """Read one response; raises `h11.RemoteProtocolError` when it breaks off."""
        machine = h11.Connection(h11.CLIENT)
        machine.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        machine.send(h11.EndOfMessage())
        if self.early:
            machine.receive_data(self.early)
        reply = Reply(0, [])
        while True:
            event = machine.next_event()
            if event is h11.NEED_DATA:
                machine.receive_data(await asyncio.wait_for(self.reader.read(65536), PATIENCE))
            elif isinstance(event, h11.Response):
                reply = Reply(event.status_code, list(event.headers))
            elif isinstance(event, h11.Data):
                reply.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                reply.trailers = list(event.headers)
                break
            else:
                raise AssertionError(event)
        self.early = machine.trailing_data[0]
        return reply

    async def rest(self) -> bytes:
        """Read until the connection is closed; a reset counts as the end."""
        data = self.early
        with suppress(ConnectionError):
            while piece := await asyncio.wait_for(self.reader.read(65536), PATIENCE):
                data += piece
        return data


@asynccontextmanager
async def agent_at(gateway: Gateway, **options: Any) -> AsyncIterator[Agent]:
    """Connect a client."""
    reader, writer = await asyncio.open_connection(*gateway.addresses[0], **options)
    try:
        yield Agent(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError, OSError):
            await writer.wait_closed()


def tls_keys(folder: Path, authority: trustme.CA, name: str) -> TlsKeys:
    """Issue a certificate for `name`, written to `folder`."""
    issued = authority.issue_cert(name)
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(folder / "cert.pem", append=number > 0)
    return TlsKeys([TlsSection(cert=str(folder / "cert.pem"), key=str(folder / "key.pem"))])


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.002)
