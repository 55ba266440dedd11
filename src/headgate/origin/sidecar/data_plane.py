"""What the data planes of all servers have in common; a data plane connects a gatekeeper to one kind of server."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field

from headgate.config.tree import Sidecar
from headgate.limit import DelayUntil, Gatekeeper
from headgate.origin.response import Rejections
from headgate.origin.sidecar.unix_socket import UnixSocket

Details = dict[str, str | int | float | bool | list[str]]
"""What a data plane shows of itself in /api/state."""

_FAILURES: Final = ("refused", "malformed", "unresponsive", "unknown_domain", "evicted", "errors")


class SidecarCounters(Struct):
    """Totals of a data plane since its start; each kind of server counts some of them."""

    connections: int = 0
    """Connections of the server."""
    requests: int = 0
    """auth_request: requests of nginx."""
    dropped: int = 0
    """Requests that the server has not reported because the sidecar was not running, or was too slow."""
    holds_sent: int = 0
    """Holds sent to the server one by one."""
    synchronizations: int = 0
    """Times that all holds in force were sent to the server."""
    failed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FAILURES, 0))
    """Connections refused because there were too many, malformed messages, workers of nginx that sent or read nothing,
    reports for a domain that the sidecar does not have, holds for which the dictionary of nginx had no space, and
    exchanges with the runtime socket of HAProxy that failed."""


class DataPlane(ABC):
    """Connects the gatekeeper of a sidecar to one kind of server; the constructor opens nothing.

    `gatekeeper` has the holds that the data plane passes on (`holds` lists them, so that a data plane stores none) and
    receives its verdicts (`admit` decides; `report` takes the decision of a server). `rejections` writes responses,
    `domains` are the names of the domains, `log` writes a line for the operator.
    """

    def __init__(
        self,
        *,
        gatekeeper: Gatekeeper,
        rejections: Rejections,
        settings: Sidecar,
        domains: Sequence[str],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.gatekeeper = gatekeeper
        self.rejections = rejections
        self.settings = settings
        self.domains = domains
        self.log = log
        self.clock = clock
        self.totals = SidecarCounters()
        """The totals since the start."""
        self._socket: UnixSocket | None = None
        self._server: asyncio.Server | None = None

    @abstractmethod
    async def start(self) -> None:
        """Listen for the server, or begin to connect to it; do not wait for a server that is not running.

        Raises `ConfigurationError` for what the operator must change.
        """

    @abstractmethod
    def hold(self, control: DelayUntil, *, now: float) -> None:
        """Pass on a hold that has just begun or was extended; `release` is limited already. Never waits or raises."""

    @abstractmethod
    def unready(self) -> str:
        """Return why the server is not limited; empty when it is."""

    @abstractmethod
    def details(self) -> Details:
        """Return a few facts about the server, such as its connections."""

    async def listen(self, path: str, flag: str, new_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Listen at a unix socket; `flag` names the option of its path in a `ConfigurationError`."""
        self._socket = UnixSocket(path, mode=self.settings.mode, flag=flag)
        self._server = await self._socket.serve(new_protocol)

    async def close(self) -> None:
        """Release all resources, also after a start that failed halfway: here, the socket."""
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
