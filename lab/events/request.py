"""A request on its way, and how it ends."""

from enum import Enum
from typing import Protocol

from lab.events.settings import Load


class Answer(Enum):
    """What a client sees as the end of its request."""

    SERVED = "served"
    FAILED = "failed"
    """The station did not answer."""
    REFUSED = "refused"
    LATE = "late"
    """There was no answer within the client's timeout."""


class Client(Protocol):
    """What sent a request."""

    def receive(self, request: "Request", *, answer: Answer, retry_after: float) -> None:
        """Take the answer to a request, and the seconds of its Retry-After."""


class Request:
    """One request; laws use `flow` and `priority` only."""

    __slots__ = (
        "arrived",
        "client",
        "cost",
        "flow",
        "hangs",
        "has_ended",
        "is_queued",
        "priority",
        "sent",
        "started",
        "time",
    )

    def __init__(self, client: Client, load: Load, *, cost: float, time: float, sent: float) -> None:
        self.client = client
        self.flow = load.name
        """The name of the load."""
        self.priority = load.priority
        """The priority class of the load."""
        self.cost = cost
        """Its work, as a multiple of the station's mean service."""
        self.time = time
        """Its service time; 0 for a time that the station draws."""
        self.sent = self.arrived = self.started = sent
        """When the client sent it, when it reached the gate, and when the law let it start."""
        self.is_queued = False
        """Whether it waits in the law's queue."""
        self.hangs = False
        """Whether the station will not answer it."""
        self.has_ended = False
        """Whether the client has seen its end."""
