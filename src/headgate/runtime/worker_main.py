"""A worker's side of its crew: told by its parent what to be, and when to end.

Run by the parent as ``python -m MODULE FD LOOP``: the worker's end of the channel, and its event loop.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, cast

from headgate.config.tree import Loop
from headgate.errors import HeadgateError
from headgate.runtime.event_loop import run
from headgate.runtime.ipc import Channel, Failed

__all__ = ["ORPHANED", "Orders", "be_worker"]

ORPHANED = 5.0
"""Seconds that what is under way gets when the parent is gone."""


def be_worker(hears: Any, serve: Callable[[Channel], Coroutine[Any, Any, int]]) -> int:
    """Be a worker until the parent, or a SIGTERM, ends it; `hears` are the messages of the parent."""
    # An interrupt at the terminal, or a reload of everything called headgate, is the parent's business.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, descriptor, loop = sys.argv

    async def work() -> int:
        channel = await Channel.over(socket.socket(fileno=int(descriptor)), hears)
        try:
            return await serve(channel)
        except (HeadgateError, OSError) as error:
            channel.send(Failed(str(error)))
        except Exception as error:
            channel.send(Failed(f"a fault of its own, {type(error).__name__}: {error}"))
        await channel.close()
        return 1

    return run(work, loop=cast(Loop, loop))


class Orders:
    """When to end, and whether to wait for that."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.seconds: asyncio.Future[float] = loop.create_future()
        """How long what is under way may take, once it is known."""
        self.insisted: asyncio.Future[None] = loop.create_future()
        """Done when the worker is to end at once after all."""

    def end(self, seconds: float) -> None:
        """End; asked a second time, at once."""
        if not self.seconds.done():
            self.seconds.set_result(seconds)
        elif not self.insisted.done():
            self.insisted.set_result(None)
