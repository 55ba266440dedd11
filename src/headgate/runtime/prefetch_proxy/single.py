"""A proxy of one process, as a server's backend."""

from contextlib import AsyncExitStack

from headgate.config import Address
from headgate.proxy.admission.tunnel_slots import create_slots
from headgate.proxy.net.sockets import listening_sockets
from headgate.runtime.listen import listen_error
from headgate.runtime.prefetch_proxy.messages import WorkerState
from headgate.runtime.prefetch_proxy.process import ProxyProcess
from headgate.runtime.prefetch_proxy.resources import ProxyResources

__all__ = ["SingleProxy"]


class SingleProxy:
    """The whole proxy in this process."""

    def __init__(self, resources: ProxyResources) -> None:
        self._resources = resources
        self._closing = AsyncExitStack()
        self._process: ProxyProcess | None = None

    async def start(self) -> int:
        """Accept clients; returns the port. Raises `ConfigurationError`."""
        settings, _, _, advising, lines = self._resources
        address = Address.parse(settings.listen)
        try:
            sockets = await listening_sockets(*address, reuse_port=False)
        except OSError as error:
            raise listen_error("--listen", address, error) from None
        for sock in sockets:
            self._closing.callback(sock.close)
        listeners = [sock.getsockname()[:2] for sock in sockets]
        shared = self._resources.share(places=create_slots(1), listeners=listeners)
        self._process = ProxyProcess(settings, shared, advising, lines)
        await self._process.start(sockets=sockets)
        return int(listeners[0][1])

    def unready(self) -> str:
        """Return why no client is accepted although it has started: never."""
        return ""

    async def states(self) -> list[WorkerState]:
        """Return the state of this process."""
        return [] if self._process is None else [self._process.state]

    def reload(self) -> None:
        """Read certificate, token keys and geofeed again. Raises, and changes nothing, for invalid files."""
        if self._process is not None:
            self._process.reload()

    async def drain(self, seconds: float) -> int:
        """Accept no more clients, and wait for open tunnels; returns how many had to be cut."""
        return 0 if self._process is None else await self._process.drain(seconds)

    async def close(self) -> None:
        """Close all tunnels, and release everything."""
        await self.drain(0)
        await self._closing.aclose()
