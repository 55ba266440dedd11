"""The transports: one module for each HTTP library, which sends a request when its `Attempt` says so, and not before.

They are imported as `headgate.agent.httpx`, `.aiohttp`, `.requests` and `.urllib`.
"""

__all__: list[str] = []
