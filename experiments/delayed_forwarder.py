"""Forwards TCP connections on loopback, each piece a fixed time after it was received: a long way between machines."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

_PIECE_SIZE = 65_536
_MAX_PIECES = 100_000
"""Pieces on their way in one direction of a connection; then it is not read any further."""
_TIMEOUT = 10.0


class DelayedForwarder:
    """Forwards a bus, `port` and its successor, to `target` and its successor, in a thread of its own.

    `delay` is for each direction, in seconds. Use it as a context manager.
    """

    def __init__(self, port: int, target: int, delay: float) -> None:
        self._ports = {port: target, port + 1: target + 1}
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="delayed-forwarder", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT)
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT)

    async def _listen(self) -> None:
        for port, target in self._ports.items():

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target) -> None:
                connection = asyncio.ensure_future(self._forward(reader, writer, target))
                self._connections.add(connection)
                connection.add_done_callback(self._connections.discard)

            self._servers.append(await asyncio.start_server(accept, "127.0.0.1", port))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        """Connect to the target, and copy in both directions until one side closes or the forwarder is closed."""
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
            copies = [asyncio.ensure_future(self._copy(*ends)) for ends in ((reader, far_writer), (far_reader, writer))]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)
                far_writer.transport.abort()
        writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MAX_PIECES)
        delivery = asyncio.ensure_future(self._deliver(pieces, writer))
        try:
            while piece := await reader.read(_PIECE_SIZE):
                await pieces.put((self._loop.time() + self._delay, piece))
        finally:
            delivery.cancel()

    async def _deliver(self, pieces: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        while True:
            due, piece = await pieces.get()
            if (wait := due - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            writer.write(piece)
            await writer.drain()
