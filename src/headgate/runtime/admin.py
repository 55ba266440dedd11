"""The admin listener of a server process: the dashboard, /livez, /readyz, /metrics and /api/state.

Every server opens it with `start_admin`, and shows `admin_url` in its line before "ready".
"""

import re
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.config import Address
from headgate.config.toml_reader import read_bytes
from headgate.config.tree import AdminSection
from headgate.errors import fail_if, naming
from headgate.runtime.lifecycle import Server
from headgate.runtime.listen import listen_error
from headgate.runtime.log import log

if TYPE_CHECKING:
    from headgate.observe.admin import Control
    from headgate.runtime.asgi_server import AsgiServer

_MAX_CONNECTIONS: Final = 64
_CONNECTION_TIMEOUT: Final = 10.0
"""Seconds from the start of a connection to its end."""
_MAX_REQUEST_SIZE: Final = 16_384
_MIN_TOKEN_SIZE, _MAX_TOKEN_SIZE = 16, 1_024


async def start_admin(
    server: Server, listen: str, settings: AdminSection, *, sock: socket.socket | None = None
) -> "AsgiServer | None":
    """Serve the admin application of a server at `listen`, if that is not empty, until the server closes.

    With `sock`, it is open there already. Returns the listener, and sets `server.admin`. Raises `ConfigurationError`
    when the address is invalid or not available.
    """
    if not listen:
        return None
    # Here, because uvicorn takes long to import.
    from headgate.observe.admin import AdminApplication
    from headgate.observe.feed import Feed
    from headgate.runtime.asgi_server import AsgiLimits, AsgiServer

    address = Address.parse(listen)
    listener = AsgiServer(limits=AsgiLimits(_MAX_CONNECTIONS, _CONNECTION_TIMEOUT, _MAX_REQUEST_SIZE))
    try:
        await listener.bind(*address, sock=sock)
    except OSError as error:
        raise listen_error("--admin", address, error) from None
    server.closing.push_async_callback(listener.close)
    control = _control(server, settings)
    if server.feed is None:
        server.feed = Feed(server, log=log)
        server.start_task(server.feed.run())
    application = AdminApplication(
        server, server.feed, addresses=listener.addresses, hosts=settings.hosts, control=control, log=log
    )
    await listener.start(application)
    server.admin = [Address(*bound) for bound in listener.addresses]
    return listener


def _control(server: Server, settings: AdminSection) -> "Control | None":
    if not settings.control:
        return None
    from headgate.observe.admin import Control
    from headgate.runtime.control import run_control

    token = partial(read_token, settings.token) if settings.token else None
    if token is not None:
        token()  # so that an invalid file is an error of the start
    return Control(partial(run_control, server), token)


def read_token(file: str) -> bytes:
    """Read the token that `headgate ctl` sends. Raises `ConfigurationError` for an invalid file."""
    with naming("admin.token"):
        token = read_bytes(file, advice="name a readable file", most=_MAX_TOKEN_SIZE).strip()
        is_valid = _MIN_TOKEN_SIZE <= len(token) <= _MAX_TOKEN_SIZE and re.fullmatch(rb"[!-~]+", token)
        fail_if(not is_valid, f"{file}: expected a token of 16 to 1024 printable ASCII characters")
    return token


def admin_url(server: Server) -> str:
    """Return the URL of the admin listener of a server, "none" if it is off."""
    return f"http://{server.admin[0]}" if server.admin else "none"
