"""Counters of the two ends of the bus."""

import msgspec


class MasterCounters(msgspec.Struct):
    """Counters of a master since its start."""

    accounted: int = 0
    """Accounting messages and records read, including those for unknown domains."""
    batches: int = 0
    """Batches read."""
    too_short: int = 0
    """Messages of fewer than five frames; dropped."""
    unknown_status: int = 0
    """Messages with an unknown status; dropped."""
    bad_timestamp: int = 0
    """Messages with an invalid timestamp; dropped."""
    bad_record: int = 0
    """Malformed records of batches; dropped."""
    bad_batch: int = 0
    """Malformed batches; dropped."""
    too_long: int = 0
    """Messages whose identifier is too long for a control message; dropped."""
    excess_frames: int = 0
    """Frames from the seventh on; ignored."""
    controls: int = 0
    """Controls published."""
    resent: int = 0
    """Controls published again for a new subscription."""
    subscriptions: int = 0
    """Subscriptions received."""


class GatekeeperCounters(msgspec.Struct):
    """Counters of a gatekeeper's link since its start."""

    sent: int = 0
    """Verdicts sent to a master."""
    batches: int = 0
    """Batches sent."""
    unheard: int = 0
    """Verdicts dropped because no master is subscribed."""
    dropped: int = 0
    """Verdicts dropped because a queue is full: the master is slow, or the link was not started."""
    too_long: int = 0
    """Verdicts dropped because the identifier is too long for a control message."""
    controls: int = 0
    """Controls obeyed."""
    malformed: int = 0
    """Malformed control messages; dropped."""
