"""An ASGI application served from this process's event loop, over HTTP/1.1, by uvicorn's protocol class.

`uvicorn.Server` is not used: it installs signal handlers of its own and ends the process when an address is taken.
uvicorn has no limit for the time a client takes to send its request, and counts connections only once they have sent
one. `_LimitedProtocol` adds both.
"""

import asyncio
import sys
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["AsgiLimits", "AsgiServer"]

_MAX_HEAD_SIZE: Final = 16_384
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class AsgiLimits(NamedTuple):
    """What clients may take."""

    connections: int
    """Open connections; further ones are closed at once."""
    seconds: float
    """From the start of a connection to its end, whatever it is used for."""


class AsgiServer:
    """Serves one application; `limits` are for listeners that untrusted clients can reach."""

    def __init__(self, *, limits: AsgiLimits | None = None) -> None:
        self.addresses: list[tuple[str, int]] = []
        """Host and port of every listening socket."""
        self._limits = limits
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._config: Config | None = None

    async def bind(self, host: str, port: int) -> None:
        """Bind, without accepting yet. Raises `OSError` when the address is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._new_protocol, host, port, start_serving=False)
        self.addresses = [sock.getsockname()[:2] for sock in self._server.sockets]

    async def start(self, application: Any) -> None:
        """Accept connections, and have `application` answer their requests."""
        assert self._server is not None, "bind comes first"
        self._config = Config(
            application,
            loop="none",
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
            h11_max_incomplete_event_size=_MAX_HEAD_SIZE,
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
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _new_protocol(self) -> asyncio.Protocol:
        assert self._config is not None, "connections are accepted once there is an application"
        return _LimitedProtocol(self._config, self._state, self._limits)


class _LimitedProtocol(H11Protocol):
    """uvicorn's protocol with limits for connections and for their time."""

    def __init__(self, config: Config, state: ServerState, limits: AsgiLimits | None) -> None:
        super().__init__(config=config, server_state=state, app_state={}, _loop=asyncio.get_running_loop())
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        super().connection_made(transport)
        if self._limits is None:
            return
        if len(self.connections) > self._limits.connections:
            transport.abort()
        else:
            self._timer = self.loop.call_later(self._limits.seconds, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what h11 does not take; uvicorn calls this while it handles h11's error."""
        if getattr(sys.exception(), "error_status_hint", 400) == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)
