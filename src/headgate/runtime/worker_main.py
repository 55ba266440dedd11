"""The main function of a worker process: a backend in a life-cycle that the supervisor drives.

The supervisor starts it as ``python -m MODULE FD LOOP``: the worker's end of the channel, and its event loop.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from headgate.config.section import Loop
from headgate.errors import HeadgateError
from headgate.runtime.ipc import Channel, Configure, Query, Ready, Reply, Shutdown, StartFailed
from headgate.runtime.lifecycle import Backend, Lifecycle, Server, cancel_tasks, run_event_loop

_ORPHAN_DRAIN: Final = 5.0
"""Seconds for requests in progress after the supervisor has ended."""

Send = Callable[[msgspec.Struct], None]
"""Sends a message to the supervisor."""


def run_worker(message_type: Any, make: Callable[[Any, Send], Backend]) -> int:
    """Run a worker until its supervisor, or a SIGTERM, stops it; returns the exit code.

    `message_type` is the union of the supervisor's messages; `make` builds the backend from the first configuration.
    """
    # Ctrl-C at the terminal, and a reload of every process named headgate, are for the supervisor.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, descriptor, loop = sys.argv

    async def main() -> int:
        channel = await Channel.open(socket.socket(fileno=int(descriptor)), message_type)
        try:
            return await _serve(channel, make)
        finally:
            await channel.close()

    return run_event_loop(main, loop=cast("Loop", loop))


async def _serve(channel: Channel, make: Callable[[Any, Send], Backend]) -> int:
    first = await channel.receive()
    if not isinstance(first, Configure):
        return 0
    try:
        server = _WorkerServer(make(first.configuration, channel.send), channel)
        lifecycle = Lifecycle(server)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lifecycle.stop)
        receiving = asyncio.create_task(server.receive(lifecycle))
        try:
            await lifecycle.run()
        finally:
            await cancel_tasks([receiving])
    except (HeadgateError, OSError) as error:
        channel.send(StartFailed(str(error)))
        return 1
    except Exception as error:
        channel.send(StartFailed(f"internal error: {type(error).__name__}: {error}"))
        return 1
    return 0


class _WorkerServer(Server):
    """A backend that reports to its supervisor."""

    def __init__(self, backend: Backend, channel: Channel) -> None:
        super().__init__()
        self.backend = backend
        self._channel = channel
        self._next_configuration: Any = None
        self._has_started = False

    async def start(self) -> None:
        await self.backend.start()

    def announce(self) -> None:
        self._has_started = True
        self._channel.send(Ready())

    async def reload(self) -> None:
        await self.backend.reload(self._next_configuration)

    async def close(self) -> None:
        if self._has_started:
            # What was counted while the last requests were served.
            await self._reply(Query("state", argument=False))
        await self.backend.close()

    async def receive(self, lifecycle: Lifecycle) -> None:
        """Handle the supervisor's messages until its end of the channel is closed."""
        try:
            while (message := await self._channel.receive()) is not None:
                await self._on_message(message, lifecycle)
        except Exception as error:
            lifecycle.fail(error)
        self.backend.on_message(None)
        lifecycle.stop(_ORPHAN_DRAIN)

    async def _reply(self, query: Query) -> None:
        answer = await self.backend.answer(query.name, query.argument)
        self._channel.send(Reply(query.name, msgspec.msgpack.encode(answer)))

    async def _on_message(self, message: Any, lifecycle: Lifecycle) -> None:
        if isinstance(message, Query):
            await self._reply(message)
        elif isinstance(message, Shutdown):
            lifecycle.stop(message.seconds)
        elif isinstance(message, Configure):
            self._next_configuration = message.configuration
            lifecycle.reload()
        else:
            self.backend.on_message(message)
