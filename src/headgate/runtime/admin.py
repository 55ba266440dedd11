"""The admin listener of a server process: its page, /livez, /readyz, /metrics and /api/state.

Every server opens it with `start_admin`, and shows `admin_url` in its line before "ready".
"""

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headgate.config import Address
from headgate.runtime.lifecycle import Server
from headgate.runtime.listen import listen_error
from headgate.runtime.log import log

if TYPE_CHECKING:
    from headgate.runtime.asgi_server import AsgiServer

_MAX_CONNECTIONS: Final = 64
_CONNECTION_TIMEOUT: Final = 10.0
"""Seconds from the start of a connection to its end."""
_MAX_REQUEST_SIZE: Final = 16_384


async def start_admin(
    server: Server, listen: str, *, hosts: Sequence[str], sock: socket.socket | None = None
) -> "AsgiServer | None":
    """Serve the admin application of a server at `listen`, if that is not empty, until the server closes.

    With `sock`, it is open there already. Returns the listener, and sets `server.admin`. Raises `ConfigurationError`
    when the address is invalid or not available.
    """
    if not listen:
        return None
    # Here, because uvicorn takes long to import.
    from headgate.observe.admin import AdminApplication
    from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

    address = Address.parse(listen)
    listener = AsgiServer(limits=AsgiLimits(_MAX_CONNECTIONS, _CONNECTION_TIMEOUT, _MAX_REQUEST_SIZE))
    try:
        await listener.bind(*address, sock=sock)
    except OSError as error:
        raise listen_error("--admin", address, error) from None
    server.closing.push_async_callback(listener.close)
    await listener.start(AdminApplication(server, addresses=listener.addresses, hosts=hosts, log=log))
    server.admin = [Address(*bound) for bound in listener.addresses]
    return listener


def admin_url(server: Server) -> str:
    """Return the URL of the admin listener of a server, "none" if it is off."""
    return f"http://{server.admin[0]}" if server.admin else "none"
