"""What a sidecar needs of a data plane, which connects a gatekeeper to one kind of server.

`nginx_lua.NginxLua`, `auth_request.AuthRequest` and `haproxy.HAProxy` are data planes; a sidecar has one of them.
A data plane is built with these arguments: `gatekeeper`, whose holds it passes on and which receives its verdicts
(`Gatekeeper.admit` decides; `Gatekeeper.report` takes the decision of a server; `Gatekeeper.holds` lists the holds in
force, so that a data plane stores none); `rejections`, which writes responses; `settings`, the table [sidecar];
`domains`, the names of the domains, at least one; `log`, which writes a line for the operator; and `clock`, which
returns the wall-clock time.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.config.tree import Sidecar
from headgate.limit import DelayUntil, Gatekeeper
from headgate.origin.response import Rejections

Details = dict[str, str | int | float | bool | list[str]]
"""What a data plane shows of itself in /api/state."""


class DataPlane(Protocol):
    """Connects the gatekeeper of a sidecar to one kind of server."""

    async def start(self) -> None:
        """Listen for the server, or begin to connect to it; do not wait for a server that is not running.

        Raises `ConfigurationError` for what the operator must change.
        """
        ...

    def hold(self, control: DelayUntil, *, now: float) -> None:
        """Pass on a hold that has just begun or was extended; `release` is limited already. Never waits or raises."""
        ...

    def unready(self) -> str:
        """Return why the server is not limited; empty when it is."""
        ...

    def counters(self) -> dict[str, int]:
        """Return totals that only grow, by name."""
        ...

    def details(self) -> Details:
        """Return a few facts about the server, such as its connections."""
        ...

    async def close(self) -> None:
        """Close all connections and release all resources, also after a start that failed halfway."""
        ...


class NewDataPlane(Protocol):
    """The constructor of a data plane; it opens nothing and does not need an event loop."""

    def __call__(
        self,
        *,
        gatekeeper: Gatekeeper,
        rejections: Rejections,
        settings: Sidecar,
        domains: Sequence[str],
        log: Callable[[str], None],
        clock: Callable[[], float] = ...,
    ) -> DataPlane:
        """Return a data plane that has not been started."""
        ...
