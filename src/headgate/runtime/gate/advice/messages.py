"""What the workers of a gate and its supervisor tell each other about traffic advice."""

import msgspec

from headgate.origin.gateway.advice_resource import AdviceFetch
from headgate.origin.gateway.arrivals import KnownAgent


class OriginReport(msgspec.Struct, frozen=True):
    """What a worker knows of the origin; the numbers of requests are those since its last report."""

    rejected: int = 0
    """Requests that rules have rejected; the concurrency limit decides on the others."""
    failed: int = 0
    """Requests that did not reach the origin. One that is too slow may be overloaded, and is not counted."""
    capacity: float = 0.0
    """Requests per second that the origin completes for this worker, as learned; 0 if not known."""


class AdviceReport(msgspec.Struct, frozen=True, tag=True):
    """Worker to supervisor: what it has counted since its last report."""

    fetches: list[AdviceFetch] = []
    """The fetches of the document."""
    arrivals: list[tuple[str, bytes, int]] = []
    """Class, agent and number of requests."""
    people: int = 0
    """The other requests."""
    origin: OriginReport = OriginReport()


class AdvicePublication(msgspec.Struct, frozen=True, tag=True):
    """Supervisor to worker: the document to serve from now on, and the agents that have fetched it."""

    document: bytes
    serial: int
    """The number of the document, which fetches of it are reported with."""
    agents: list[KnownAgent] = []
    """Agents that have fetched the document lately."""
