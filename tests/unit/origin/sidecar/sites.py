"""The site that the tests of generated configurations write."""

from typing import Any

from headgate.config import Address
from headgate.origin.sidecar.site import Site

VALUES: dict[str, Any] = {
    "listen": Address("127.0.0.1", 8080),
    "origin": "http://127.0.0.1:8000",
    "domain": "api",
    "socket": "/run/headgate.sock",
    "table": "headgate",
}


def site(**changes: Any) -> Site:
    """Return a site with these values in place of its own."""
    return Site(**VALUES | changes)
