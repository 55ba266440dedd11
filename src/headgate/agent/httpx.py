"""A polite transport for httpx2 and httpx, and clients that have it already."""

from headgate.agent.transports.httpx import AsyncTransport, Transport
from headgate.agent.transports.httpx_clients import AsyncClient, Client

__all__ = ["AsyncClient", "AsyncTransport", "Client", "Transport"]
