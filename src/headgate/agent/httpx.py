"""For httpx2 and httpx: polite transports, and clients that have one already.

The transports need no particular library; a client is a class of httpx2, or of httpx where only that is installed.
"""

from typing import TYPE_CHECKING

from headgate.agent.httpx_transport import AsyncTransport, Transport

if TYPE_CHECKING:
    from headgate.agent.httpx_client import AsyncClient, Client

__all__ = ["AsyncClient", "AsyncTransport", "Client", "Transport"]


def __getattr__(name: str) -> object:
    """Import the clients when they are asked for."""
    if name in {"AsyncClient", "Client"}:
        from headgate.agent import httpx_client

        return getattr(httpx_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
