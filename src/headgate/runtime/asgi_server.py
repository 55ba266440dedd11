"""An ASGI application served from this process's event loop over HTTP/1.1, such as the admin listener.

uvicorn's protocol class does it. `uvicorn.Server` is not used: it installs signal handlers of its own and ends the
process when an address is taken. uvicorn has no limit for the time a client takes to send its request, counts
connections only once they have sent one, and limits a head only while it is incomplete. h11's expression for a header
field takes time quadratic in the length of a run of spaces: 0.7 s for 16 KiB, and minutes for what fits into one read.
`_LimitedProtocol` closes all of that. Import this module where it is used: uvicorn takes long to import.
"""

import asyncio
import re
import socket
from typing import Any, Final, NamedTuple

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headgate.runtime.lifecycle import cancel_tasks

_MAX_SPACES: Final = 256
_MANY_SPACES: Final = re.compile(rb"[ \t]{%d}" % _MAX_SPACES)
_REJECTION: Final = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class AsgiLimits(NamedTuple):
    """Limits for clients."""

    connections: int
    """Maximum open connections; further ones are closed at once."""
    seconds: float
    """Maximum duration of a connection."""
    size: int
    """Maximum bytes that a client sends on one connection."""


class AsgiServer:
    """Serves one application; `limits` are for listeners that untrusted clients can reach."""

    def __init__(self, *, limits: AsgiLimits | None = None) -> None:
        self.addresses: list[tuple[str, int]] = []
        """Host and port of every listening socket."""
        self._limits = limits
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._config: Config | None = None

    async def bind(self, host: str, port: int, *, sock: socket.socket | None = None) -> None:
        """Bind, or use `sock`, without accepting yet. Raises `OSError` when the address is not available."""
        where: dict[str, Any] = {"host": host, "port": port} if sock is None else {"sock": sock}
        create = asyncio.get_running_loop().create_server
        self._server = await create(self._new_protocol, start_serving=False, **where)
        self.addresses = [one.getsockname()[:2] for one in self._server.sockets]

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the listening sockets."""
        return [one.fileno() for one in self._server.sockets] if self._server else []

    async def start(self, application: Any) -> None:
        """Accept connections, and have `application` answer their requests."""
        assert self._server is not None, "bind comes first"
        self._config = Config(
            application,
            loop="none",
            http="h11",  # with its default it would import every protocol class that is installed
            ws="none",
            lifespan="off",
            interface="asgi3",
            # The level of uvicorn's own loggers: what clients send must not fill stderr.
            log_config=None,
            log_level="critical",
            access_log=False,
            workers=1,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        self._config.load()
        await self._server.start_serving()

    async def close(self) -> None:
        """Stop accepting, and abort the connections that are open."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await cancel_tasks(self._state.tasks)
        await self._server.wait_closed()

    def _new_protocol(self) -> asyncio.Protocol:
        assert self._config is not None, "connections are accepted once there is an application"
        return _LimitedProtocol(self._config, self._state, self._limits)


class _LimitedProtocol(H11Protocol):
    """uvicorn's protocol with limits for connections and for their time."""

    def __init__(self, config: Config, state: ServerState, limits: AsgiLimits | None) -> None:
        # An application may answer for longer, as an event stream does: for each event it calls `extend`.
        extend = {"extend": self._limit_time}
        super().__init__(config=config, server_state=state, app_state=extend, _loop=asyncio.get_running_loop())
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._end = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        if self._limits is None:
            return
        if len(self.connections) > self._limits.connections:
            transport.abort()
        else:
            self._limit_time()

    def _limit_time(self) -> None:
        if self._limits is not None and not self.transport.is_closing():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(self._limits.seconds, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._limits is not None:
            self._received += len(data)
            recent = self._end + data  # a run of spaces may have begun earlier
            self._end = recent[1 - _MAX_SPACES :]
            if self._received > self._limits.size:
                self._reject(b"431 Request Header Fields Too Large")
                return
            if _MANY_SPACES.search(recent):
                self._reject(b"400 Bad Request")
                return
        super().data_received(data)

    def _reject(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(_REJECTION % status)
            self.transport.close()
