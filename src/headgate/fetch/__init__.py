"""Fetching over connections of our own, and what decides how long fetches may take and why they failed.

`fetcher` fetches traffic advice, for agents without an HTTP client and for the prefetch proxy: one GET on
asyncio's streams. `pace` limits the time for a response. `local_errors` tells failures of this machine from failures of
an origin.
"""
