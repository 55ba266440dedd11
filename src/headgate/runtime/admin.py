"""The admin listener of a server process: its page, /livez, /readyz, /metrics and /api/state.

Every server opens it with `start_admin`, and shows `admin_url` in its line before "ready".
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.config import Address
from headgate.runtime.listen import listen_error
from headgate.runtime.log import write_line

if TYPE_CHECKING:
    from headgate.observe.admin import Collect, ReadState

_MAX_CONNECTIONS: Final = 64
_CONNECTION_TIMEOUT: Final = 10.0
"""Seconds from the start of a connection to its end."""
_MAX_REQUEST_SIZE: Final = 16_384
_State = TypeVar("_State")


async def start_admin(
    listen: str,
    closing: AsyncExitStack,
    *,
    state: "ReadState[_State]",
    unready: Callable[[], str],
    collect: "Collect[_State]",
    hosts: Sequence[str],
    to_json: Callable[[_State], object] | None = None,
) -> list[Address]:
    """Serve the admin application at `listen` until `closing` ends; returns the numeric addresses bound.

    If `listen` is empty, nothing is served and no address is returned. See `AdminApplication` for the other arguments.
    Raises `ConfigurationError` when the address is invalid or not available.
    """
    if not listen:
        return []
    # Here, because uvicorn takes long to import.
    from headgate.observe.admin import AdminApplication
    from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

    address = Address.parse(listen)
    server = AsgiServer(limits=AsgiLimits(_MAX_CONNECTIONS, _CONNECTION_TIMEOUT, _MAX_REQUEST_SIZE))
    try:
        await server.bind(*address)
    except OSError as error:
        raise listen_error("--admin", address, error) from None
    closing.push_async_callback(server.close)
    application = AdminApplication(
        state,
        unready,
        collect,
        to_json=to_json,
        addresses=server.addresses,
        hosts=hosts,
        log=lambda text: write_line(f"headgate: {text}"),
    )
    await server.start(application)
    return [Address(*bound) for bound in server.addresses]


def admin_url(addresses: Sequence[Address]) -> str:
    """Return the URL of an admin listener bound at `addresses`, "none" if it is off."""
    return f"http://{addresses[0]}" if addresses else "none"
