"""The origin of the demonstration: a fixed number of workers, each busy for a fixed time with a request.

It behaves as a busy server does: requests wait in one queue in the order of their arrival, and those whose clients have
given up are worked on all the same. So under overload the queue grows until every response is too late. Workers sleep
instead of computing: the demonstration shows queues, not the processor.

As a main module, it runs one origin as a worker process, which listens with and without TLS.
"""

import asyncio
import heapq
import sys
import time
from email.utils import formatdate
from typing import Any, Final

import msgspec

from headgate.advice import PATH
from headgate.config import Address
from headgate.runtime.ipc import Configure, Ready, Shutdown, StartFailed
from headgate.runtime.lifecycle import Backend
from headgate.runtime.worker_main import run_worker

_MAX_WAIT: Final = 30.0
"""Seconds that a request waits at most; then the queue is full, and its connection is closed."""
_MAX_HEAD: Final = 16_384
_BODY: Final = b"<!doctype html><title>News</title><p>A page of the sample origin.\n"
_HEAD_END: Final = b"\r\n\r\n"


class OriginConfiguration(msgspec.Struct, frozen=True):
    """The configuration of the origin."""

    plain: Address
    encrypted: Address
    """Where it listens with TLS, for clients of prefetch proxies; both addresses are reserved by its parent."""
    certificate: str
    key: str
    workers: int
    service_time: float


FromParent = Configure[OriginConfiguration] | Shutdown
FromOrigin = Ready | StartFailed


class Workers:
    """When each request is finished by the first free of so many workers, in the order of arrival. Reads no clock."""

    def __init__(self, count: int, service_time: float) -> None:
        self._service_time = service_time
        self._free_at = [0.0] * count

    def finish(self, *, now: float) -> float | None:
        """Return when a request that arrives now is finished; None if it would wait too long to begin."""
        begin = max(now, self._free_at[0])
        if begin - now > _MAX_WAIT:
            return None
        finished = begin + self._service_time
        heapq.heapreplace(self._free_at, finished)
        return finished


class OriginProcess(Backend):
    """The origin as a backend of its process."""

    def __init__(self, configuration: OriginConfiguration) -> None:
        self._configuration = configuration
        self._workers = Workers(configuration.workers, configuration.service_time)
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen at both addresses."""
        import ssl

        made, loop = self._configuration, asyncio.get_running_loop()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(made.certificate, made.key)
        for address, context in ((made.plain, None), (made.encrypted, tls)):
            server = await loop.create_server(
                lambda: _Connection(self), *address, ssl=context, reuse_port=True, backlog=4_096
            )
            self._servers.append(server)

    async def close(self) -> None:
        """Stop listening; the connections end with the process."""
        for server in self._servers:
            server.close()

    def schedule(self, connection: "_Connection") -> bool:
        """Have a worker answer on a connection; return False if the queue is full."""
        loop = asyncio.get_running_loop()
        finished = self._workers.finish(now=loop.time())
        if finished is None:
            return False
        loop.call_at(finished, connection.respond, b"200 OK", _BODY)
        return True


class _Connection(asyncio.Protocol):
    """Reads requests without bodies, one at a time, and writes their responses."""

    def __init__(self, origin: OriginProcess) -> None:
        self._origin = origin
        self._transport: Any = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if _HEAD_END not in self._buffer:
            if len(self._buffer) > _MAX_HEAD:
                self._transport.close()
            return
        head, _, self._buffer = self._buffer.partition(_HEAD_END)
        if head.split(b" ", 2)[1:2] == [PATH.encode()]:
            self.respond(b"404 Not Found", b"")
        elif not self._origin.schedule(self):
            self._transport.close()

    def respond(self, status: bytes, body: bytes) -> None:
        """Write a response; nothing happens if the client has left."""
        if not self._transport.is_closing():
            date = formatdate(time.time(), usegmt=True).encode()
            self._transport.write(
                b"HTTP/1.1 %s\r\nDate: %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s"
                % (status, date, len(body), body)
            )


def main() -> int:
    """Run an origin until its parent, or a SIGTERM, stops it."""
    return run_worker(FromParent, lambda configuration, _send: OriginProcess(configuration))


if __name__ == "__main__":
    sys.exit(main())
