"""A worker: one gate in a process of its own, told by its parent what to be and when to end."""

import asyncio
import signal
import sys

from headgate.cli.channel import Ask, Channel, Configure, End, Ready, Told
from headgate.cli.duty import ORPHANED, Orders, be_worker
from headgate.cli.gate import Gate, GateOrders
from headgate.cli.running import say
from headgate.errors import HeadgateError

__all__ = ["main"]


def main() -> int:
    """Be a worker until the parent, or a SIGTERM, ends it."""
    return be_worker(Configure[GateOrders] | Ask | End, _serve)


async def _serve(channel: Channel) -> int:
    first = await channel.receive()
    if not isinstance(first, Configure):
        return 0
    gate = Gate(first.orders.tree, bus=first.orders.bus)
    await gate.start(reuse_port=True)
    orders = Orders()
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


async def _obey(channel: Channel, gate: Gate, orders: Orders) -> None:
    """Do what the parent says until it is gone."""
    while True:
        message = await channel.receive()
        if isinstance(message, Ask):
            channel.send(Told(gate.state(held=message.whole)))
        elif isinstance(message, End):
            orders.end(message.seconds)
        elif isinstance(message, Configure):
            try:
                gate.change(message.orders.tree)
            except (HeadgateError, OSError) as error:
                say(f"headgate: a worker keeps its configuration: {error}")
        else:
            orders.end(ORPHANED)
            return


if __name__ == "__main__":
    sys.exit(main())
