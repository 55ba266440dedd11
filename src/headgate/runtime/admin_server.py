"""The admin listener: the admin application of a server, in the server's own process.

Starlette and uvicorn are imported when it starts: a server without an admin listener does without them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.config import Address
from headgate.observe import Collect
from headgate.runtime.stderr import write_line

if TYPE_CHECKING:
    from headgate.observe.admin import Readiness, ReadState
    from headgate.runtime.asgi_server import AsgiServer

__all__ = ["AdminServer"]

_MAX_CONNECTIONS: Final = 64
_CONNECTION_TIMEOUT: Final = 10.0
"""Seconds from the start of a connection to its end."""

_State = TypeVar("_State")


class AdminServer(Generic[_State]):
    """Shows the state of one server; see `admin_application` for the arguments."""

    def __init__(
        self,
        state: "ReadState[_State]",
        unready: "Readiness",
        collect: Collect[_State],
        *,
        to_json: Callable[[_State], object] | None = None,
    ) -> None:
        self._state = state
        self._unready = unready
        self._collect = collect
        self._to_json = to_json
        self._server: AsgiServer | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket; empty before the start."""
        return [] if self._server is None else self._server.addresses

    @property
    def url(self) -> str:
        """Where it listens, or "none"."""
        return f"http://{Address(*self.addresses[0])}" if self.addresses else "none"

    async def start(self, address: Address) -> None:
        """Listen at `address`. Raises `OSError` when it is not available."""
        from headgate.observe.admin import admin_application
        from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

        server = AsgiServer(limits=AsgiLimits(_MAX_CONNECTIONS, _CONNECTION_TIMEOUT))
        await server.bind(*address)
        self._server = server
        application = admin_application(
            self._state,
            self._unready,
            self._collect,
            to_json=self._to_json,
            addresses=self.addresses,
            on_error=lambda error: write_line(f"headgate: internal error in the admin listener: {error!r}"),
        )
        await server.start(application)

    async def close(self) -> None:
        """Stop listening; requests under way are aborted."""
        if self._server is not None:
            await self._server.close()
