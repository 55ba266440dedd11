"""A worker: one gate in a process of its own, told by its parent what to be and when to end."""

import asyncio
import signal
import sys

from headgate.config import Configuration
from headgate.errors import HeadgateError
from headgate.runtime.event_loop import Reloads, say
from headgate.runtime.gate.process import Gate, GateOrders
from headgate.runtime.ipc import Ask, Channel, Configure, End, Ready, Told
from headgate.runtime.worker_main import ORPHANED, Orders, be_worker

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
    changes = _Changes(gate)
    listening = asyncio.ensure_future(_obey(channel, gate, orders, changes))
    channel.send(Ready())
    seconds = await orders.seconds
    await changes.end()
    ending = asyncio.ensure_future(gate.end(seconds))
    await asyncio.wait([ending, orders.insisted], return_when=asyncio.FIRST_COMPLETED)
    # The last word: what was counted while the last requests ended.
    channel.send(Told(gate.state()))
    for task in (ending, listening):
        task.cancel()
    await asyncio.gather(ending, listening, return_exceptions=True)
    await channel.close()
    return 0


class _Changes(Reloads):
    """Puts configurations in force one after the other; of several that wait, only the last."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(self._change)
        self._gate = gate
        self._newest = gate.tree

    def put(self, tree: Configuration) -> None:
        """Have a configuration put in force soon."""
        self._newest = tree
        self.ask()

    async def _change(self) -> None:
        try:
            await self._gate.change(self._newest)
        except (HeadgateError, OSError) as error:
            say(f"headgate: a worker keeps its configuration: {error}")


async def _obey(channel: Channel, gate: Gate, orders: Orders, changes: _Changes) -> None:
    """Do what the parent says until it is gone."""
    while True:
        message = await channel.receive()
        if isinstance(message, Ask):
            channel.send(Told(await gate.whole_state() if message.whole else gate.state()))
        elif isinstance(message, End):
            orders.end(message.seconds)
        elif isinstance(message, Configure):
            changes.put(message.orders.tree)
        else:
            orders.end(ORPHANED)
            return


if __name__ == "__main__":
    sys.exit(main())
