"""A worker: one prefetch proxy in a process of its own, told by its parent what to be and when to end."""

import asyncio
import signal
import sys
from typing import Any

from headgate.errors import HeadgateError
from headgate.proxy.admission.remote_advice import AdviceReply, RemoteAdvice
from headgate.proxy.log import LogWriter
from headgate.runtime.ipc import Ask, Channel, Configure, End, Ready, Told
from headgate.runtime.prefetch_proxy.log_setup import log_lines
from headgate.runtime.prefetch_proxy.messages import FromParent, Renew
from headgate.runtime.prefetch_proxy.process import PrefetchProxy
from headgate.runtime.worker_main import ORPHANED, Orders, be_worker

__all__ = ["main"]


def main() -> int:
    """Be a worker until the parent, or a SIGTERM, ends it."""
    return be_worker(FromParent, _serve)


async def _serve(channel: Channel) -> int:
    first = await channel.receive()
    if not isinstance(first, Configure):
        return 0
    assignment = first.orders
    with log_lines() as lines:
        advising = RemoteAdvice(channel.send)
        proxy = PrefetchProxy(assignment.settings, assignment.share, advising, lines)
        await proxy.start(addresses=assignment.addresses)
        orders = Orders()
        drain = assignment.settings.drain
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: orders.end(drain))
        listening = asyncio.ensure_future(_obey(channel, proxy, advising, orders=orders, lines=lines))
        channel.send(Ready())
        ending = asyncio.ensure_future(proxy.end(await orders.seconds))
        either: list[asyncio.Future[Any]] = [ending, orders.insisted]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await proxy.end(0)
        await ending
        # The last word: what was counted while the last tunnels ended, and how many did not.
        channel.send(Told(proxy.state))
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    await channel.close()
    return 0


async def _obey(
    channel: Channel, proxy: PrefetchProxy, advising: RemoteAdvice, *, orders: Orders, lines: LogWriter
) -> None:
    """Do what the parent says until it is gone."""
    while True:
        message = await channel.receive()
        if isinstance(message, AdviceReply):
            advising.hear(message)
        elif isinstance(message, Ask):
            channel.send(Told(proxy.state))
        elif isinstance(message, End):
            orders.end(message.seconds)
        elif isinstance(message, Renew):
            try:
                proxy.renew()
            except (HeadgateError, OSError) as error:
                lines.say(f"headgate: a worker keeps what it has read before: {error}")
        else:
            advising.close()
            orders.end(ORPHANED)
            return


if __name__ == "__main__":
    sys.exit(main())
