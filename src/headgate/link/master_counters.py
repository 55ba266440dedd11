"""What a master counts of its bus, and the reading of batches, whose errors are counted."""

import msgspec

from headgate.errors import WireError
from headgate.link.batch import AccountingRecord, decode_batch


class MasterCounters(msgspec.Struct):
    """Counters of a master since its start."""

    accounted: int = 0
    """Accounting messages and records read, including those for unknown domains."""
    batches: int = 0
    """Batches read."""
    resent_records: int = 0
    """Records that gatekeepers sent again, because this master had not received them."""
    resent_dropped: int = 0
    """Batches sent again that were dropped, because too many of them were waiting."""
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
    refused_keys: int = 0
    """Connections refused: the key of the peer is not allowed."""
    failed_handshakes: int = 0
    """Other connections whose handshake failed: without CURVE, for another server key, or malformed."""


def decode_counted(payload: bytes, counters: MasterCounters) -> list[AccountingRecord]:
    """Return the records of a batch; count it, or its errors."""
    try:
        records, bad = decode_batch(payload)
    except WireError:
        counters.bad_batch += 1
        return []
    counters.batches += 1
    counters.bad_record += bad
    return records
