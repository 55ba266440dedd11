"""The admin listener: the admin application of a server, in the server's own process.

Starlette and uvicorn are imported when it starts: a server without an admin listener does without them.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.config import Address
from headgate.runtime.listen import listen_error
from headgate.runtime.stderr import write_line

if TYPE_CHECKING:
    from headgate.observe.admin import Collect, ReadState


_MAX_CONNECTIONS: Final = 64
_CONNECTION_TIMEOUT: Final = 10.0
"""Seconds from the start of a connection to its end."""
_MAX_REQUEST_SIZE: Final = 16_384

_State = TypeVar("_State")


async def start_admin(
    address: Address,
    closing: AsyncExitStack,
    *,
    state: "ReadState[_State]",
    unready: Callable[[], str],
    collect: "Collect[_State]",
    to_json: Callable[[_State], object] | None = None,
) -> list[Address]:
    """Serve the admin application at `address` until `closing` ends; returns the numeric addresses bound.

    See `admin_application` for the other arguments. Raises `ConfigurationError` when the address is not available.
    """
    from headgate.observe.admin import admin_application
    from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

    server = AsgiServer(limits=AsgiLimits(_MAX_CONNECTIONS, _CONNECTION_TIMEOUT, _MAX_REQUEST_SIZE))
    try:
        await server.bind(*address)
    except OSError as error:
        raise listen_error("--admin", address, error) from None
    closing.push_async_callback(server.close)
    application = admin_application(
        state,
        unready,
        collect,
        to_json=to_json,
        addresses=server.addresses,
        on_error=lambda error: write_line(f"headgate: internal error in the admin listener: {error!r}"),
    )
    await server.start(application)
    return [Address(*bound) for bound in server.addresses]
