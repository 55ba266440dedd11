"""A polite adapter for requests."""

from headgate.agent.transports.requests import Adapter, Held

__all__ = ["Adapter", "Held"]
