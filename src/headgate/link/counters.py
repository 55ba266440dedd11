"""What the two sides of the bus count.

This file knows nothing of sockets.
"""

import msgspec

__all__ = ["GatekeeperCounters", "MasterCounters"]


class MasterCounters(msgspec.Struct):
    """What a master's bus has seen since the start."""

    accounted: int = 0
    """Accounting messages and records that were read, those for unknown domains included."""
    batches: int = 0
    """Batches among them."""
    too_short: int = 0
    """Messages of fewer than five frames; dropped."""
    unknown_status: int = 0
    """Messages whose status is none of the document's; dropped."""
    bad_timestamp: int = 0
    """Messages without a finite decimal where a timestamp belongs; dropped."""
    bad_record: int = 0
    """Records of batches that are no records; dropped."""
    bad_batch: int = 0
    """Batches that cannot be read at all; dropped."""
    too_long: int = 0
    """Messages whose identifier fits no control message; dropped, so that nothing is kept that cannot be said."""
    excess_frames: int = 0
    """Frames from the seventh on; ignored."""
    controls: int = 0
    """Controls published."""
    resent: int = 0
    """Controls published again for a new subscription."""
    subscriptions: int = 0
    """Subscriptions heard."""


class GatekeeperCounters(msgspec.Struct):
    """What a gatekeeper's bus has seen since the start."""

    sent: int = 0
    """Verdicts that went to a master."""
    batches: int = 0
    """Batches they went in."""
    unheard: int = 0
    """Verdicts dropped because no master listens."""
    dropped: int = 0
    """Verdicts dropped because a queue is full: the master is slow, or the link is not driven."""
    too_long: int = 0
    """Verdicts dropped because of an identifier no control could ever name."""
    controls: int = 0
    """Controls obeyed."""
    malformed: int = 0
    """Messages on the control socket that are no controls; dropped."""
