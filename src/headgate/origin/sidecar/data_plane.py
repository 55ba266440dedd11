"""What the data planes of all servers have in common; a data plane connects a gatekeeper to one kind of server."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from msgspec import Struct, field

from headgate.config.tree import Sidecar
from headgate.limit import DelayUntil, Gatekeeper
from headgate.origin.response import Rejections
from headgate.origin.sidecar.unix_socket import UnixSocket

if TYPE_CHECKING:
    from headgate.origin.agents import AgentVerifier

Details = dict[str, str | int | float | bool | list[str]]
"""What a data plane shows of itself in /api/state."""

_MAX_REPORTED: Final = 32
"""Unknown domains that are logged in an hour."""
_REPORT_INTERVAL: Final = 3_600.0
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


class DataPlane:
    """Connects the gatekeeper of a sidecar to one kind of server; the constructor opens nothing.

    `gatekeeper` has the holds that the data plane passes on (`holds` lists them, so that a data plane stores none) and
    receives its verdicts (`admit` decides; `report` takes the decision of a server). `rejections` writes responses,
    `domains` are the names of the domains, `log` writes a line for the operator.
    """

    key: ClassVar[str]
    """The key of the settings with the socket of this kind of server."""
    max_connections = 1_024
    """Connections of the server; a further one is refused."""

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
        self.agents: AgentVerifier | None = None
        """Verifies agents, for servers that ask about each request."""
        self.gatekeeper = gatekeeper
        self.rejections = rejections
        self.settings = settings
        self.domains = domains
        self.log = log
        self.clock = clock
        self.totals = SidecarCounters()
        """The totals since the start."""
        self.connections: dict[PlaneConnection[Any], None] = {}
        """The open connections of the server, in the order in which they began."""
        self._is_closed = False
        self._reported: dict[str, float] = {}
        self._socket: UnixSocket | None = None
        self._server: asyncio.Server | None = None
        self._work: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen for the server, or begin to connect to it; do not wait for a server that is not running.

        Raises `ConfigurationError` for what the operator must change.
        """
        raise NotImplementedError

    def hold(self, control: DelayUntil, *, now: float) -> None:
        """Pass on a hold that has just begun or was extended; `release` is limited already. Never waits or raises."""

    def unready(self) -> str:
        """Return why the server is not limited; empty when it is."""
        return ""

    def details(self) -> Details:
        """Return a few facts about the server, such as its connections."""
        return {"connections": len(self.connections)}

    async def listen(self, new_protocol: Callable[[], asyncio.BaseProtocol], suffix: str = "") -> None:
        """Listen at the unix socket that the settings name; `suffix` is added to its path."""
        path, flag = getattr(self.settings, self.key) + suffix, f"--{self.key.replace('_', '-')}"
        self._socket = UnixSocket(path, mode=self.settings.mode, flag=flag)
        self._server = await self._socket.serve(new_protocol)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until the end."""
        self._work.append(asyncio.get_running_loop().create_task(work))

    async def close(self) -> None:
        """Release all resources, also after a start that failed halfway."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        self._is_closed = True
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # their transports close in this turn

    def admit(self, connection: "PlaneConnection[Any]") -> None:
        """Add a connection, unless there are too many or the data plane is closed."""
        self.totals.connections += 1
        self.connections[connection] = None
        if self._is_closed or len(self.connections) > self.max_connections:
            self.totals.failed["refused"] += 1
            connection.close()

    def log_identify(self, server: str) -> None:
        """Log that `server` does not learn from the sidecar how it identifies clients."""
        method = self.settings.identify
        if method != "client-address":
            self.log(f"{server} identifies clients by its own configuration; print it with --identify {method}")

    def report_unknown(self, domain: str, *, now: float) -> None:
        """Count a request for a domain that the sidecar does not have; log the domain, each one once an hour."""
        self.totals.failed["unknown_domain"] += 1
        self._reported = {name: until for name, until in self._reported.items() if until > now}
        if domain not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported[domain] = now + _REPORT_INTERVAL
            self.log(
                f"warning: nginx names the domain {domain!r:.300}, which this sidecar does not have; its requests are "
                "not limited: add it with --domain, or correct the configuration of nginx"
            )


P = TypeVar("P", bound=DataPlane)


class PlaneConnection(asyncio.Protocol, Generic[P]):
    """A connection of the server to its data plane."""

    _transport: asyncio.Transport

    def __init__(self, plane: P) -> None:
        self.plane = plane

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the connections of the data plane."""
        self._transport = cast("asyncio.Transport", transport)
        self.plane.admit(self)

    def close(self) -> None:
        """Close the connection at once; what has not been written is dropped."""
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # the signature of a protocol
        """Leave them."""
        self.plane.connections.pop(self, None)
