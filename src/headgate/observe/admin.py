"""The admin listener: /livez, /readyz, /metrics and /api/state, on an address of their own.

A small HTTP/1.1 server that answers GET and HEAD and nothing else, one request a connection, bounded in bytes,
connections and seconds. On a loopback address it answers only to loopback names: a page in somebody's browser whose
own name was pointed at 127.0.0.1 reads nothing here.
"""

import asyncio
import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from headgate.observe.metrics import Collect, Metrics

__all__ = ["Admin", "Read", "Readiness"]

_State = TypeVar("_State")
_Told_co = TypeVar("_Told_co", covariant=True)


class Read(Protocol[_Told_co]):
    """Reads what is going on."""

    async def __call__(self, *, whole: bool) -> _Told_co:
        """Give the state; what takes long to find out, and no metric is about, only when the `whole` is asked for."""


Readiness = Callable[[], str]
"""Says why requests are not accepted; empty when they are."""

_MAX_HEAD = 16_384
_MAX_CONNECTIONS = 64
_PATIENCE = 10.0
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) (/[\x21-\x7e]*) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):([^\x00-\x08\x0a-\x1f\x7f]*+)")
_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.\-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_TEXT = "text/plain; charset=utf-8"


class _Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = _TEXT
    extra: str = ""


class _Refused(Exception):  # not an error of ours: what a request is told
    def __init__(self, status: int, why: str, extra: str = "") -> None:
        super().__init__(why)
        self.answer = _Answer(status, f"{why}\n".encode(), extra=extra)


class Admin(Generic[_State]):
    """Answers for one server: `state` gives what it is doing, `unready` why it accepts nothing, if so.

    Of a state /metrics has what `collect` makes of it, and /api/state what `shown` does, or else the state itself.
    """

    def __init__(
        self,
        state: Read[_State],
        unready: Readiness,
        collect: Collect[_State],
        *,
        shown: Callable[[_State], object] | None = None,
    ) -> None:
        self._state = state
        self._unready = unready
        self._metrics = Metrics(collect)
        self._shown = shown
        self.addresses: list[tuple[str, int]] = []
        """Where it listens: host and port of every listening socket."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._only_loopback = True

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind and answer from now on; returns the address bound. Raises OSError when it cannot be had."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=_MAX_HEAD)
        self.addresses = [bound.getsockname()[:2] for bound in self._server.sockets]
        self._only_loopback = all(ipaddress.ip_address(name[0]).is_loopback for name in self.addresses)
        return self.addresses[0]

    async def close(self) -> None:
        """Stop answering; requests under way are cut."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, answer it, close; whatever a stranger sends ends here."""
        with suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_PATIENCE):
                method, answer = await self._answered(reader)
                writer.write(_written(answer, body=method != b"HEAD"))
                await writer.drain()
                await _hung_up(reader, writer)
        writer.close()

    async def _answered(self, reader: asyncio.StreamReader) -> tuple[bytes, _Answer]:
        method = b"GET"
        try:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                raise _Refused(431, "The head of the request is too large.") from None
            method, path, fields = _parsed(head)
            self._check_host(fields)
            return method, await self._found(path, fields)
        except _Refused as refused:
            return method, refused.answer

    def _check_host(self, fields: dict[bytes, bytes]) -> None:
        """Refuse names that are not loopback on a listener that is: DNS rebinding brings such names."""
        match = _HOST.fullmatch(fields.get(b"host", b"localhost").decode("latin-1"))
        if match is None:
            raise _Refused(400, "The Host field names no host.")
        if self._only_loopback and not _is_loopback(match["host"].lower()):
            raise _Refused(421, "This listener answers to loopback names only, such as localhost and 127.0.0.1.")

    async def _found(self, path: str, fields: dict[bytes, bytes]) -> _Answer:
        if path == "/livez":
            return _Answer(200, b"alive\n")
        if path == "/readyz":
            why = self._unready()
            return _Answer(503, f"{why}\n".encode()) if why else _Answer(200, b"ready\n")
        if path == "/metrics":
            accept = fields.get(b"accept", b"").decode("latin-1")
            return _Answer(200, *self._metrics.write(await self._state(whole=False), accept))
        if path == "/api/state":
            state = await self._state(whole=True)
            shown = state if self._shown is None else self._shown(state)
            return _Answer(200, msgspec.json.encode(shown) + b"\n", "application/json")
        raise _Refused(404, "There are /livez, /readyz, /metrics and /api/state.")


def _parsed(head: bytes) -> tuple[bytes, str, dict[bytes, bytes]]:
    """Read a head strictly; raises `_Refused` for one that is not plain, or asks for something else than reading."""
    first, *rest = head[:-4].split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise _Refused(400, "This is no HTTP/1.1 request line.")
    fields: dict[bytes, bytes] = {}
    for text in rest:
        field = _FIELD.fullmatch(text)
        if field is None:
            raise _Refused(400, "A header field is malformed.")
        name, value = field[1].lower(), field[2].strip(b" \t")
        if name == b"host" and name in fields:
            raise _Refused(400, "There is more than one Host field.")
        fields[name] = fields[name] + b", " + value if name in fields else value
    if line[3] == b"1" and b"host" not in fields:
        raise _Refused(400, "There is no Host field.")
    if line[1] not in {b"GET", b"HEAD"}:
        raise _Refused(405, "Only GET and HEAD are answered.", "allow: GET, HEAD\r\n")
    if b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0":
        raise _Refused(400, "A request to read has no body.")
    return line[1], line[2].decode("ascii").partition("?")[0], fields


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _written(answer: _Answer, *, body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"content-type: {answer.kind}\r\n"
        f"content-length: {len(answer.body)}\r\n"
        "cache-control: no-store\r\n"
        "x-content-type-options: nosniff\r\n"
        f"{answer.extra}"
        "connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (answer.body if body else b"")


async def _hung_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the other side read: closing on unread bytes would reset the connection and lose the answer."""
    if writer.can_write_eof():
        writer.write_eof()
    for _ in range(_MAX_CONNECTIONS):
        if not await reader.read(_MAX_HEAD):
            return
