"""The two messages between gatekeepers and masters, as values.

This module does not encode them. An `Accounting` is both the verdict on a request and the message to the master; a
`DelayUntil` is the response of the master. Instants are seconds since 1970; identifiers are arbitrary bytes.
"""

import msgspec

from headgate.release import Status


class Accounting(msgspec.Struct, frozen=True, gc=False):
    """The verdict on one request (smockron.txt, Accounting Socket)."""

    domain: str
    """The group of resources that the request was for; without NUL."""
    status: Status
    """Accepted, delayed or rejected."""
    identifier: bytes
    """The client that the request is counted for."""
    received: float
    """When the request was received at the gatekeeper."""
    release: float
    """When it may proceed: `received` if accepted, the delayed timestamp if delayed, the end of its hold if not."""
    loginfo: bytes = b""
    """Free content for debugging; the document does not specify it."""

    @property
    def wait(self) -> float:
        """Seconds from the request to its release; 0.0 when it was accepted."""
        return max(0.0, self.release - self.received)


class DelayUntil(msgspec.Struct, frozen=True, gc=False):
    """Requests of `identifier` to `domain` "should not be allowed before a given time" (smockron.txt, DELAY_UNTIL)."""

    domain: str
    identifier: bytes
    release: float


class Totals(msgspec.Struct):
    """The number of requests by verdict since the start."""

    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
