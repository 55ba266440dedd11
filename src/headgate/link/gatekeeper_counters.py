"""What a gatekeeper counts of its bus."""

import msgspec


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
    resent: int = 0
    """Verdicts sent again to a master that has started without a history, or was not connected."""
    controls: int = 0
    """Controls obeyed."""
    malformed: int = 0
    """Malformed control messages; dropped."""
    failed_handshakes: int = 0
    """Connections whose handshake failed: the master refuses the key, or the two sides do not both use CURVE."""
