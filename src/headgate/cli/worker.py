"""A worker: one gate in a process of its own, told by its parent what to be and when to end.

Run by the parent as ``python -m headgate.cli.worker FD``, where FD is its end of the channel.
"""

import asyncio
import signal
import socket
import sys

from headgate.cli.channel import Ask, Channel, Configure, End, Failed, FromParent, Ready, Told
from headgate.cli.gate import Gate
from headgate.cli.running import run, say
from headgate.errors import HeadgateError

__all__ = ["main"]

_ORPHANED = 5.0
"""Seconds that requests under way get when the parent is gone."""


def main() -> int:
    """Be a worker until the parent, or a SIGTERM, ends it."""
    # An interrupt at the terminal, or a reload of everything called headgate, is the parent's business.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return run(_work(socket.socket(fileno=int(sys.argv[1]))))


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
    loop = asyncio.get_running_loop()
    seconds: asyncio.Future[float] = loop.create_future()

    def asked() -> None:
        if not seconds.done():
            seconds.set_result(gate.tree.gate.drain)

    loop.add_signal_handler(signal.SIGTERM, asked)
    listening = loop.create_task(_obey(channel, gate, seconds))
    channel.send(Ready())
    await gate.end(await seconds)
    # The last word: what was counted while the last requests ended.
    channel.send(Told(gate.state()))
    listening.cancel()
    await channel.close()
    return 0


async def _obey(channel: Channel, gate: Gate, seconds: "asyncio.Future[float]") -> None:
    """Do what the parent says until it says to end, or is gone."""
    while True:
        message = await channel.receive()
        if isinstance(message, Ask):
            channel.send(Told(gate.state()))
        elif isinstance(message, Configure):
            try:
                gate.change(message.tree)
            except (HeadgateError, OSError) as error:
                say(f"headgate: a worker keeps its configuration: {error}")
        else:
            if not seconds.done():
                seconds.set_result(message.seconds if isinstance(message, End) else _ORPHANED)
            if message is None:
                return


if __name__ == "__main__":
    sys.exit(main())
