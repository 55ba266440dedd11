"""A worker: one gate in a process of its own, told by its parent what to be and when to end.

Run by the parent as ``python -m headgate.cli.worker FD LOOP``: its end of the channel, and gate.loop.
"""

import asyncio
import signal
import socket
import sys
from typing import cast

from headgate.cli.channel import Ask, Channel, Configure, End, Failed, FromParent, Ready, Told
from headgate.cli.gate import Gate
from headgate.cli.running import run, say
from headgate.config.tree import Loop
from headgate.errors import HeadgateError

__all__ = ["main"]

_ORPHANED = 5.0
"""Seconds that requests under way get when the parent is gone."""


def main() -> int:
    """Be a worker until the parent, or a SIGTERM, ends it."""
    # An interrupt at the terminal, or a reload of everything called headgate, is the parent's business.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, descriptor, loop = sys.argv
    return run(lambda: _work(socket.socket(fileno=int(descriptor))), loop=cast(Loop, loop))


async def _work(sock: socket.socket) -> int:
    channel = await Channel.over(sock, FromParent)
    try:
        return await _serve(channel)
    except (HeadgateError, OSError) as error:
        channel.send(Failed(str(error)))
    except Exception as error:
        channel.send(Failed(f"a fault of its own, {type(error).__name__}: {error}"))
    await channel.close()
    return 1


async def _serve(channel: Channel) -> int:
    first = await channel.receive()
    if not isinstance(first, Configure):
        return 0
    gate = Gate(first.tree)
    await gate.start(reuse_port=True)
    orders = _Orders(asyncio.get_running_loop())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: orders.end(gate.tree.gate.drain))
    listening = asyncio.ensure_future(_obey(channel, gate, orders))
    channel.send(Ready())
    ending = asyncio.ensure_future(gate.end(await orders.seconds))
    await asyncio.wait([ending, orders.insisted], return_when=asyncio.FIRST_COMPLETED)
    # The last word: what was counted while the last requests ended.
    channel.send(Told(gate.state(held=False)))
    for task in (ending, listening):
        task.cancel()
    await asyncio.gather(ending, listening, return_exceptions=True)
    await channel.close()
    return 0


class _Orders:
    """When to end, and whether to wait for that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seconds: asyncio.Future[float] = loop.create_future()
        """How long requests under way may take, once it is known."""
        self.insisted: asyncio.Future[None] = loop.create_future()
        """Done when the worker is to end at once after all."""

    def end(self, seconds: float) -> None:
        """End; asked a second time, at once."""
        if not self.seconds.done():
            self.seconds.set_result(seconds)
        elif not self.insisted.done():
            self.insisted.set_result(None)


async def _obey(channel: Channel, gate: Gate, orders: _Orders) -> None:
    """Do what the parent says until it is gone."""
    while True:
        message = await channel.receive()
        if isinstance(message, Ask):
            channel.send(Told(gate.state(held=message.held)))
        elif isinstance(message, End):
            orders.end(message.seconds)
        elif isinstance(message, Configure):
            try:
                gate.change(message.tree)
            except (HeadgateError, OSError) as error:
                say(f"headgate: a worker keeps its configuration: {error}")
        else:
            orders.end(_ORPHANED)
            return


if __name__ == "__main__":
    sys.exit(main())
