"""Bundles for programs that send requests: answered from a bundle, read by range from a server, collected into one.

httpx2, or httpx, is imported when a client is made or passed.
"""

from headgate.agent.bundle.asgi_client import asgi_client
from headgate.agent.bundle.collection import Collection, collect
from headgate.agent.bundle.exchange_builder import Limits
from headgate.agent.bundle.ranges import AsyncRangeBundle, RangeBundle, StreamedResponse
from headgate.agent.bundle.transport import AsyncBundleTransport, BundleTransport
from headgate.agent.bundle.url_list import read_url_list

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
