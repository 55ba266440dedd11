"""A tunnel server, scripted targets, and clients that send arbitrary bytes, in one event loop.

The server connects to the requested port of this machine, unless the decision is replaced.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from headgate.proxy.connect import DEFAULT_IDLE, AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.server import TunnelServer
from headgate.proxy.sockets import listening_socket, server_context
from tests.e2e.gateway_setup import PATIENCE
from tests.e2e.gateway_setup import until as until  # for its users

LARGE = 12 * 2**20
"""Bytes: far more than what all buffers between two programs hold, so that both kinds of relaying are seen."""
STATUS = {"malformed": 400, "method": 405, "connections": 503}

Script = Callable[["Target"], Awaitable[None]]


class StubDecision:
    """A decision that accepts every port of this machine, and records the requests and the closed tunnels."""

    def __init__(self, *, idle: float = DEFAULT_IDLE) -> None:
        self.idle = idle
        self.requests: list[ConnectRequest] = []
        self.closed: list[tuple[int, int, str]] = []
        self.early_refusals: list[str] = []
        self.refusals: dict[str, RefusedConnect] = {}
        """By authority."""
        self.gate: asyncio.Event | None = None
        """Awaited before anything is decided."""
        self.cancelled = 0
        self.server: TunnelServer | None = None

    async def __call__(self, asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        self.requests.append(asked)
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if asked.draining:
            return RefusedConnect(status=503, fields=[("Retry-After", "7")], reason="draining")
        if asked.authority in self.refusals:
            return self.refusals[asked.authority]
        return await self.open(asked)

    async def open(self, asked: ConnectRequest) -> AcceptedConnect | RefusedConnect:
        """Connect to the target."""
        assert self.server is not None
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await self.server.connector.connect(sock, ("127.0.0.1", int(asked.authority.rpartition(":")[2])), 10)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                return RefusedConnect(status=502, fields=[("Retry-After", "0")], reason="dial_refused")
            raise
        return AcceptedConnect(socket=sock, on_closed=lambda *told: self.closed.append(told), idle=self.idle)

    def refuse_early(self, reason: str, _peer: tuple[str, int]) -> RefusedConnect:
        """Refuse what is not decided on."""
        self.early_refusals.append(reason)
        return RefusedConnect(
            status=STATUS[reason], fields=[("Proxy-Status", f'headgate; details="{reason}"')], reason=reason
        )


class Target:
    """One connection at a target."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def echo(self) -> None:
        """Send back what is received, and the end."""
        while piece := await self.reader.read(1 << 16):
            self.writer.write(piece)
            await self.writer.drain()

    async def read_all(self) -> None:
        """Read to the end."""
        while await self.reader.read(1 << 16):
            pass

    def reset(self) -> None:
        """Close with a reset."""
        reset(self.writer)


@asynccontextmanager
async def target_running(script: Script = Target.echo) -> AsyncIterator[int]:
    """Run a target, each connection of which is closed when its script is over; gives its port."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        task.add_done_callback(running.discard)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await script(Target(reader, writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def proxy_running(
    decision: StubDecision | None = None, *, tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncIterator[TunnelServer]:
    """Run a tunnel server on a free port, for a limited time."""
    decision = decision or StubDecision()
    server = TunnelServer(decision, decision.refuse_early, **settings)
    decision.server = server
    server.start(listening_socket("127.0.0.1", 0), tls=tls)
    try:
        async with asyncio.timeout(6 * PATIENCE):
            yield server
    finally:
        await server.drain(0)


class Client:
    """A client, inside TLS or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, raw: bytes, *, step: int = 0) -> None:
        """Send bytes, in pieces of `step` where that is given."""
        for start in range(0, len(raw), step or len(raw) or 1):
            self.writer.write(raw[start : start + (step or len(raw))])
            await self.writer.drain()
            if step:
                await asyncio.sleep(0.001)

    async def head(self) -> bytes:
        """Read the head of a response."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def ask(self, port: int | str, more: bytes = b"") -> bytes:
        """Request a tunnel; return the head of the response."""
        authority = port if isinstance(port, str) else f"a.example:{port}"
        await self.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode() + more)
        return await self.head()

    async def read(self, count: int) -> bytes:
        """Read exactly so many bytes."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        """Read to the end."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read()

    def reset(self) -> None:
        """Close with a reset."""
        reset(self.writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the peer sees a reset."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def client_at(server: TunnelServer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """Connect to a tunnel server."""
    reader, writer = await asyncio.open_connection(
        *server.addresses[0], ssl=tls, server_hostname="localhost" if tls else None, limit=1 << 24
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


@cache
def authority() -> trustme.CA:
    """Return one certificate authority for all tests."""
    return trustme.CA()


def listener_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a TLS listener with a new certificate."""
    issued = authority().issue_cert("localhost")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return server_context(str(cert), str(key))


def client_context() -> ssl.SSLContext:
    """Return the context of a client that trusts the listener."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context


async def open_tunnel(client: Client, port: int) -> None:
    """Request a tunnel, which is accepted."""
    assert b" 200 " in await client.ask(port)


class Encryption(NamedTuple):
    """The TLS contexts of a listener and its client; None without TLS."""

    listener: ssl.SSLContext | None
    client: ssl.SSLContext | None
