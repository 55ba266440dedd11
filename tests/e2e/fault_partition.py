"""A forwarder between gatekeepers and a master that can be cut: the partition of a network, and its end.

It forwards a pair of ports, for accounting and control, in a thread. While it is `closed`, it refuses connections and
has ended those there were; while it is `silent`, it accepts connections and forwards nothing, as when a host has lost
its power.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

_PIECE = 65_536
PATIENCE = 10.0

Cut = Literal["closed", "silent"]


class Forwarder:
    """Forwards `port` and its successor to `target` and its successor, on loopback."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._ports = {port: target, port + 1: target + 1}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forwarder", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._thread.start()
        self._run(self._listen)

    def _run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(function(), self._loop).result(PATIENCE)

    def cut(self, how: Cut) -> None:
        """Begin a partition."""
        self._run(self._close if how == "closed" else self._silence)

    def restore(self) -> None:
        """End a partition. Connections from before a silent one continue."""
        self._run(self._restore)

    def close(self) -> None:
        """Stop for good."""
        self._run(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _listen(self) -> None:
        for port, target in self._ports.items():

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int = target) -> None:
                await self._serve(reader, writer, target)

            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", port))

    async def _restore(self) -> None:
        self._open.set()
        if not self._servers:
            await self._listen()

    async def _silence(self) -> None:
        self._open.clear()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for writer in list(self._writers):
            writer.transport.abort()
        self._open.set()  # so that the tasks of those connections end
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        """Connect to the target and copy in both directions until one end closes."""
        self._writers.add(writer)
        try:
            await self._open.wait()
            there, to_there = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            self._end(writer)
            return
        self._writers.add(to_there)
        await asyncio.gather(self._copy(reader, to_there), self._copy(there, writer))
        self._end(writer)
        self._end(to_there)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                await self._open.wait()
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()
