"""Bundles for programs that send requests: answered from a bundle, read out of one on a server, fetched into one.

Import what you need from its own module; httpx2 (or httpx) is loaded where a client is made or handed over.
"""

from headgate.agent.bundle.ranges import RangeBundle

__all__ = ["RangeBundle"]
