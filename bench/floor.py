"""What a gateway in Python cannot be faster than: `python -m bench.floor ORIGIN_PORT` runs one of two small servers.

Before an origin it passes bytes on, over one kept connection for each of a client, and parses nothing. With 0 it
answers whatever arrives with one fixed rejection. Both run on uvloop, and print the port on which they listen.
"""

import asyncio
import sys
from typing import cast

import uvloop

REJECTION = (
    b"HTTP/1.1 503 Service Unavailable\r\nDate: Thu, 01 Jan 1970 00:00:01 GMT\r\nRetry-After: 60\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 120\r\n\r\n" + b"x" * 119 + b"\n"
)


class _End(asyncio.Protocol):
    """One end of a pipe: what it receives is written to the other one, as soon as there is one."""

    other: asyncio.Transport | None = None
    early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early += data
        else:
            self.other.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


class _Client(_End):
    """The client's end, which opens the other one to the origin."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.opening = asyncio.get_running_loop().create_task(self.open())

    async def open(self) -> None:
        origin, end = await asyncio.get_running_loop().create_connection(_End, "127.0.0.1", self.port)
        end.other, self.other = self.transport, origin
        origin.write(self.early)


class _Fixed(_End):
    """Answers each piece it receives."""

    def data_received(self, _data: bytes) -> None:
        self.transport.write(REJECTION)


async def main(origin: int) -> None:
    """Serve until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(origin) if origin else _Fixed(), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
