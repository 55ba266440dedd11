"""Bundles for programs that send requests: answered from a bundle, read out of one on a server, fetched into one.

httpx2, or httpx, is loaded where a client is made or handed over, and not before.
"""

from headgate.agent.bundle.app import acollect_app, collect_app
from headgate.agent.bundle.async_ranges import AsyncRangeBundle
from headgate.agent.bundle.collect import Collection, collect
from headgate.agent.bundle.intake import Limits
from headgate.agent.bundle.ranges import RangeBundle
from headgate.agent.bundle.transport import AsyncBundleTransport, BundleTransport
from headgate.agent.bundle.url_list import read_url_list

__all__ = [
    "AsyncBundleTransport",
    "AsyncRangeBundle",
    "BundleTransport",
    "Collection",
    "Limits",
    "RangeBundle",
    "acollect_app",
    "collect",
    "collect_app",
    "read_url_list",
]
