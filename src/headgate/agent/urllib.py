"""A polite handler for openers of the standard library's `urllib.request`."""

from headgate.agent.transports.urllib import Handler, Held

__all__ = ["Handler", "Held"]
