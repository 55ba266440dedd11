"""A scripted HTTP server on loopback, and what a place for clients needs."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from headgate.runtime.demo.agents import Place
from headgate.runtime.demo.connections import Target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REFUSAL = b"HTTP/1.1 503 Busy\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers each request with what `answers` has for its path, otherwise with `answer`; None never answers."""

    def __init__(self) -> None:
        self.answer: bytes | None = OK
        self.answers: dict[str, bytes] = {}
        self.heads: list[str] = []
        self.connections = 0
        self.port = 0
        self.talks: set[asyncio.Task[None] | None] = set()

    @property
    def target(self) -> Target:
        return Target(self.port, "localhost", tls=False)

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    def place(self, *, deadline: float = 5.0) -> Place:
        return Place(self.target, (self.port,), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), deadline=deadline)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.talks.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                answer = self.answers.get(head.split(" ")[1], self.answer)
                if answer is not None:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            writer.transport.abort()


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await asyncio.sleep(0.01)  # connections that were opened last are accepted in the next turns of the loop
        listener.close()
        talks = [talk for talk in server.talks if talk is not None]
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks)
        await asyncio.sleep(0.01)  # transports that were aborted close in the next turns of the loop


def asynchronous(test: Callable[[Server], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Make a test of a coroutine that takes a running server."""

    def run() -> None:
        async def main() -> None:
            async with serving() as server, asyncio.timeout(20):
                await test(server)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run
