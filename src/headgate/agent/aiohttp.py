"""A polite client middleware for aiohttp."""

from headgate.agent.transports.aiohttp import Held, Middleware

__all__ = ["Held", "Middleware"]
