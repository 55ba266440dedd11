"""The main function of a worker process: its life-cycle, driven by its supervisor.

The supervisor starts it as ``python -m MODULE FD LOOP``: the worker's end of the channel, and its event loop.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import msgspec

from headgate.config.tree import Loop
from headgate.errors import HeadgateError
from headgate.runtime.event_loop import run
from headgate.runtime.ipc import Channel, Configure, Ready, Shutdown, StartFailed, StateQuery, StateReport
from headgate.runtime.lifecycle import Lifecycle, Server

__all__ = ["Send", "Worker", "run_worker"]

_ORPHAN_DRAIN: Final = 5.0
"""Seconds that requests under way get when the supervisor is gone."""

Send = Callable[[msgspec.Struct], None]
"""Sends a message to the supervisor."""


class Worker(Protocol):
    """What a worker process serves; see `Server` for the methods of the same names."""

    @property
    def drain_timeout(self) -> float:
        """Seconds that requests under way may take."""

    async def start(self) -> object:
        """Start to accept clients."""

    async def state(self, *, whole: bool) -> Any:
        """Return the state that is reported to the supervisor."""

    async def reload(self, configuration: Any) -> object:
        """Put another configuration in force."""

    def on_message(self, message: Any) -> None:
        """Handle a message of a kind that not every worker has; None when the supervisor is gone."""

    async def drain(self, seconds: float) -> object:
        """Accept no more clients, and wait for those that are served."""

    async def close(self) -> None:
        """Release everything."""

    def log(self, message: str) -> None:
        """Write a message for the operator."""


def run_worker(message_type: Any, make: Callable[[Any, Send], Worker]) -> int:
    """Run a worker until its supervisor, or a SIGTERM, stops it; returns the exit code.

    `message_type` is the union of the supervisor's messages; `make` builds the worker from the first configuration.
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

    return run(main, loop=cast(Loop, loop))


async def _serve(channel: Channel, make: Callable[[Any, Send], Worker]) -> int:
    first = await channel.receive()
    if not isinstance(first, Configure):
        return 0
    try:
        server = _WorkerServer(make(first.configuration, channel.send), channel)
        lifecycle = Lifecycle(server)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lifecycle.stop)
        receiving = asyncio.ensure_future(server.receive(lifecycle))
        try:
            await lifecycle.run()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
    except (HeadgateError, OSError) as error:
        channel.send(StartFailed(str(error)))
        return 1
    except Exception as error:
        channel.send(StartFailed(f"internal error: {type(error).__name__}: {error}"))
        return 1
    return 0


class _WorkerServer(Server):
    """A worker as its life-cycle drives it."""

    def __init__(self, worker: Worker, channel: Channel) -> None:
        self._worker = worker
        self._channel = channel
        self._next_configuration: Any = None
        self._has_started = False

    @property
    def drain_timeout(self) -> float:
        return self._worker.drain_timeout

    async def start(self, unready: Callable[[], str], fail: Callable[[BaseException], None]) -> None:  # noqa: ARG002  # the supervisor has the admin listener
        await self._worker.start()

    def announce(self) -> None:
        self._has_started = True
        self._channel.send(Ready())

    async def reload(self) -> None:
        await self._worker.reload(self._next_configuration)

    async def drain(self, seconds: float) -> None:
        await self._worker.drain(seconds)

    async def close(self) -> None:
        await self._worker.close()
        if self._has_started:
            # What was counted while the last requests were served.
            self._channel.send(StateReport(await self._worker.state(whole=False)))

    def log(self, message: str) -> None:
        self._worker.log(message)

    async def receive(self, lifecycle: Lifecycle) -> None:
        """Handle the supervisor's messages until it is gone."""
        try:
            await self._receive(lifecycle)
        except Exception as error:
            lifecycle.fail(error)

    async def _receive(self, lifecycle: Lifecycle) -> None:
        while (message := await self._channel.receive()) is not None:
            if isinstance(message, StateQuery):
                self._channel.send(StateReport(await self._worker.state(whole=message.whole)))
            elif isinstance(message, Shutdown):
                lifecycle.stop(message.seconds)
            elif isinstance(message, Configure):
                self._next_configuration = message.configuration
                lifecycle.reload()
            else:
                self._worker.on_message(message)
        self._worker.on_message(None)
        lifecycle.stop(_ORPHAN_DRAIN)
