"""Transports that answer from a bundle, bundles read by range requests, and responses collected for a bundle.

httpx2, or httpx, is imported when a client is made or passed.
"""

from headgate.agent.bundle.collection import Collection, Limits, asgi_client, collect, read_url_list
from headgate.agent.bundle.ranges import AsyncRangeBundle, RangeBundle, StreamedResponse
from headgate.agent.bundle.transport import AsyncBundleTransport, BundleTransport

__all__ = [
    "AsyncBundleTransport",
    "AsyncRangeBundle",
    "BundleTransport",
    "Collection",
    "Limits",
    "RangeBundle",
    "StreamedResponse",
    "asgi_client",
    "collect",
    "read_url_list",
]
