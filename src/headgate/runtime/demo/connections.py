"""A small HTTP/1.1 client for the load of the demonstration: GET requests over kept connections, and CONNECT tunnels.

The agent library has transports for complete clients; here the requests must cost little, since they share the
processors with everything that they load.
"""

import asyncio
import ssl
from typing import Final, NamedTuple

import msgspec

from headgate.errors import FetchError, ProtocolError
from headgate.http.fields import Pairs
from headgate.http.h1.response import parse_response_head
from headgate.http.h1.syntax import split_fields

_MAX_BODY: Final = 1 << 20
_MAX_IDLE: Final = 16
"""Idle connections that a client keeps."""
_MAX_OPENING: Final = 8
"""Connections that a client opens at the same time."""


class Target(msgspec.Struct, frozen=True):
    """Where clients send their requests."""

    port: int
    """On 127.0.0.1."""
    host: str
    """The name in the URL and in the certificate."""
    tls: bool

    @property
    def authority(self) -> str:
        """Host and port, as in the URL."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of its origin."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"


class Response(NamedTuple):
    """A whole response."""

    status: int
    fields: Pairs
    body: bytes


class Connection:
    """One connection to a server or a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, source: str) -> "Connection":
        """Connect from an address of loopback. Raises `OSError`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        return cls(reader, writer)

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        """Begin TLS. Raises `OSError` (of which `ssl.SSLError` is one)."""
        await self._writer.start_tls(tls, server_hostname=host)

    async def exchange(self, head: bytes, *, has_body: bool = True) -> Response:
        """Send a request without a body, and read its response.

        Raises `FetchError` for a malformed or incomplete one, `OSError` for a lost connection.
        """
        self._writer.write(head)
        try:
            parsed = parse_response_head(await self._reader.readuntil(b"\r\n\r\n"))
            if parsed.chunked or not parsed.length <= _MAX_BODY:
                raise FetchError("expected a response with a short Content-Length")
            length = max(0, parsed.length) if has_body else 0
            body = await self._reader.readexactly(length) if length else b""
        except (ProtocolError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise FetchError(f"invalid response: {error}") from None
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in split_fields(parsed.lines)]
        if not parsed.keep_alive:
            self.close()
        return Response(parsed.status, fields, body)

    @property
    def is_open(self) -> bool:
        """Whether it can be used again."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    def close(self) -> None:
        """Close it at once, without waiting for the other end."""
        self._writer.transport.abort()


class Client:
    """Sends the requests of one client to a target, over connections that it keeps.

    A connection that is being opened when its request is given up is opened all the same, and kept for the next one.
    Otherwise a server that is too slow to open all connections in time would never get rid of that work.
    """

    def __init__(self, target: Target, tls: ssl.SSLContext, source: str, fields: str) -> None:
        self.target = target
        self._tls = tls
        self._source = source
        self._fields = fields
        self._idle: list[Connection] = []
        self._opening: set[asyncio.Task[Connection]] = set()
        self._is_closed = False

    async def connect(self) -> None:
        """Open a connection to keep. Raises `OSError`."""
        self._keep(await self._open())

    async def get(self, path: str, fields: str = "") -> Response:
        """Send a request; raises `FetchError` or `OSError` without a response. If cancelled, the connection closes."""
        connection = await self._connection()
        try:
            response = await connection.exchange(request_head(self.target, path, fields or self._fields))
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return response

    def close(self) -> None:
        """Close the idle connections, and keep no others."""
        self._is_closed = True
        for opening in self._opening:
            opening.cancel()
        while self._idle:
            self._idle.pop().close()

    def _keep(self, connection: Connection) -> None:
        """Keep an open connection for later requests."""
        if connection.is_open and len(self._idle) < _MAX_IDLE and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()

    async def _connection(self) -> Connection:
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
            connection.close()
        if len(self._opening) >= _MAX_OPENING:
            raise FetchError(f"{_MAX_OPENING} connections are being opened")
        opening = asyncio.get_running_loop().create_task(self._open())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._keep_late)
            raise

    async def _open(self) -> Connection:
        connection = await Connection.open(self.target.port, self._source)
        if self.target.tls:
            await encrypt(connection, self._tls, self.target)
        return connection

    def _keep_late(self, opening: asyncio.Task[Connection]) -> None:
        """Keep a connection whose request was given up."""
        if not opening.cancelled() and opening.exception() is None:
            self._keep(opening.result())


async def open_tunnel(proxy: int, target: Target, tls: ssl.SSLContext, source: str) -> Connection | None:
    """Open a tunnel to a target through the prefetch proxy at a port; return None if the proxy refuses."""
    connection = await Connection.open(proxy, source)
    try:
        head = f"CONNECT {target.authority} HTTP/1.1\r\nHost: {target.authority}\r\n\r\n".encode()
        response = await connection.exchange(head, has_body=False)
    except BaseException:
        connection.close()
        raise
    if response.status != 200:
        connection.close()
        return None
    await encrypt(connection, tls, target)
    return connection


async def encrypt(connection: Connection, tls: ssl.SSLContext, target: Target) -> None:
    """Begin TLS on a new connection; close it if that fails."""
    try:
        await connection.encrypt(tls, target.host)
    except BaseException:
        connection.close()
        raise


def request_head(target: Target, path: str, fields: str) -> bytes:
    """Return the head of a GET request; `fields` are whole lines."""
    return f"GET {path} HTTP/1.1\r\nHost: {target.authority}\r\n{fields}\r\n".encode("latin-1")


def client_context(certificate: str) -> ssl.SSLContext:
    """Return the TLS context of clients that trust only this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(certificate)
    return context
