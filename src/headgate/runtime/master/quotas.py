"""The quota service of a master: it shares the link, so that Envoys and gatekeepers on the bus have one history."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from headgate.config import Address
from headgate.config.tree import Bus
from headgate.limit import Master
from headgate.link import MasterLink
from headgate.observe import Counters, read_counters
from headgate.observe.master_state import QuotaState
from headgate.runtime.bus_protection import require_quota_protection


class Quotas:
    """The quota service that `settings` describe. `log` is called with errors.

    Raises `ConfigurationError` if it would be open to others or its certificate is not usable, and `MissingExtra`.
    """

    def __init__(self, link: MasterLink, settings: Bus, log: Callable[[str], None]) -> None:
        # Here, because grpc takes a quarter of a second to import, and may be missing.
        from headgate.rlqs.server import QuotaServer
        from headgate.rlqs.service import QuotaService

        require_quota_protection(settings)
        self._service = QuotaService(link.master, link.publish)
        files = [settings.rlqs_key, settings.rlqs_cert] if settings.rlqs_cert else []
        tls = [Path(file).read_bytes() for file in files]
        self._server = QuotaServer(self._service, Address.parse(settings.rlqs), log=log, tls=tls)
        link.follow(self._server.on_control)

    @property
    def address(self) -> Address:
        """Where Envoys connect to."""
        return self._server.address

    async def start(self) -> None:
        """Listen. Raises `ConfigurationError` if the address is not available."""
        await self._server.start()

    async def close(self) -> None:
        """End all streams."""
        await self._server.close()

    def state(self) -> QuotaState:
        """Return the sizes of the tables."""
        return QuotaState(str(self.address), self._service.streams, self._service.buckets)

    def counters(self) -> Counters:
        """Return the counters."""
        return read_counters(("quota", self._service.counters))

    def groups(self) -> list[tuple[str, type[Struct]]]:
        """Return the group of these counters."""
        return [("quota", type(self._service.counters))]

    def set_master(self, master: Master) -> None:
        """Serve for another master."""
        self._service.set_master(master)
