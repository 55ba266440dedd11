"""Transports that answer from a bundle, and responses collected for a bundle.

httpx2, or httpx, is imported when a client is made or passed.
"""

from headgate.agent.bundle.collection import Collection, Limits, collect, read_url_list
from headgate.agent.bundle.transport import AsyncBundleTransport, BundleTransport

__all__ = [
    "AsyncBundleTransport",
    "BundleTransport",
    "Collection",
    "Limits",
    "collect",
    "read_url_list",
]
