"""Fetching traffic advice over a connection of our own, for agents without an HTTP client and for the prefetch proxy.

`fetcher` makes one GET on asyncio and h11. `call_thread` limits the wait for blocking calls, `pace` how slowly a body
may arrive. `local_errors` tells failures of this machine from failures of an origin.
"""

__all__: list[str] = []
