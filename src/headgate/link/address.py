"""The two endpoints of the bus, from the one address that is configured.

This module opens no socket. Accounting uses the given port, 10004 by default, and control the next port (smockron.txt,
Low-Level Proto: "master tcp:10004 SUB", "master tcp:10005 PUB").
"""

import ipaddress
import re
from typing import NamedTuple

from headgate.config.address import is_host
from headgate.errors import ConfigurationError

DEFAULT_PORT = 10004
"""Default port for accounting; control uses the next port."""

_CONTROL = ".control"
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<rest>\S+)")
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Za-z:.%_-]+\]|[^\s\[\]/:;,@]+)(?::(?P<port>[0-9]{1,5}))?")


class Endpoints(NamedTuple):
    """The endpoints that ZeroMQ binds or connects to."""

    accounting: str
    control: str


def endpoints(address: str) -> Endpoints:
    """Parse ``HOST``, ``HOST:PORT``, ``tcp://HOST:PORT``, ``ipc://PATH`` or ``inproc://NAME``.

    An IPv6 host needs brackets if a port follows. Port 0 stays 0 for both: the system chooses the ports when they are
    bound. The control endpoint of a path or name has ".control" appended. Raises `ConfigurationError` with the address
    and an example.
    """
    match = _ADDRESS.fullmatch(address)
    scheme, rest = (match["scheme"] or "tcp", match["rest"]) if match else ("", "")
    if scheme in {"ipc", "inproc"}:
        return Endpoints(f"{scheme}://{rest}", f"{scheme}://{rest}{_CONTROL}")
    found = _HOST_PORT.fullmatch(_bracketed(rest)) if scheme == "tcp" else None
    port = int(found["port"] or DEFAULT_PORT) if found else -1
    if found is None or not 0 <= port < 65535 or not is_host(found["host"]):  # control needs the next port
        raise ConfigurationError(
            f"invalid master address {address!r}; expected one such as 'tcp://127.0.0.1:{DEFAULT_PORT}'"
        )
    following = port + 1 if port else 0
    return Endpoints(f"tcp://{found['host']}:{port}", f"tcp://{found['host']}:{following}")


def _bracketed(rest: str) -> str:
    """Add brackets to a bare IPv6 address: its last group is not a port."""
    try:
        ipaddress.IPv6Address(rest)
    except ValueError:
        return rest
    return f"[{rest}]"
