"""Fetching traffic advice over a connection of our own, for agents without an HTTP client and for the prefetch proxy.

`fetcher` makes one GET on asyncio and h11; `local_errors` tells failures of this machine from failures of an origin.
"""

__all__: list[str] = []
