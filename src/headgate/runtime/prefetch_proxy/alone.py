"""A proxy of one process."""

from contextlib import AsyncExitStack

from headgate.errors import ConfigurationError
from headgate.proxy.admission.tunnel_slots import create_slots
from headgate.proxy.net.sockets import listening_sockets
from headgate.runtime.event_loop import run
from headgate.runtime.listen import address_sentence
from headgate.runtime.prefetch_proxy.process import PrefetchProxy
from headgate.runtime.prefetch_proxy.server import Front, ReadProxy, live

__all__ = ["serve_alone"]


def serve_alone(read: ReadProxy) -> int:
    """Serve from this process until a signal ends it; returns the exit code."""
    return run(lambda: live(read, _start), loop=read()[0].loop)


async def _start(front: Front, closing: AsyncExitStack) -> PrefetchProxy:
    try:
        sockets = await listening_sockets(*front.address, reuse_port=False)
    except OSError as error:
        raise ConfigurationError(address_sentence("--listen", front.address, error)) from None
    for sock in sockets:
        closing.callback(sock.close)
    share = front.share(places=create_slots(1), listeners=[sock.getsockname()[:2] for sock in sockets])
    proxy = PrefetchProxy(front.settings, share, front.advising, front.lines)
    closing.push_async_callback(proxy.end, 0)
    await proxy.start(sockets=sockets)
    return proxy
