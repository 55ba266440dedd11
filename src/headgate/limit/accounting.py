"""The two messages between gatekeepers and masters, as values.

This file knows nothing of frames. An `Accounting` is at once the verdict on a request and what the master is told of
it; a `DelayUntil` is what the master answers. Instants are seconds since 1970; identifiers are bytes and come back
unchanged whatever they hold.
"""

import msgspec

from headgate.release import Status

__all__ = ["Accounting", "DelayUntil", "Totals"]


class Accounting(msgspec.Struct, frozen=True, gc=False):
    """What became of one request (smockron.txt, Accounting Socket)."""

    domain: str
    """The group of resources the request was for; without NUL."""
    status: Status
    """Accepted, delayed or rejected."""
    identifier: bytes
    """Who asked."""
    received: float
    """When the request was received at the gatekeeper."""
    release: float
    """When it may go: `received` if accepted, the delayed timestamp if delayed, the end of the hold if rejected."""
    loginfo: bytes = b""
    """Anything of use for debugging; unspecified by the document."""

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
    """How many requests met each verdict since the start."""

    accepted: int = 0
    delayed: int = 0
    rejected: int = 0
