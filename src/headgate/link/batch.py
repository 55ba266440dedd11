"""Batched accounting: many records of one domain in one message.

This module opens no socket. A batch is two frames: the domain's batch topic, and a msgpack array of at most
`MAX_RECORDS` records, each an array of five that stands for frames 1 to 5 of the document's accounting message:
status (0 accepted, 1 delayed, 2 rejected), identifier (bin), received and delayed (integer milliseconds since 1970;
delayed is 0 unless the status is 1) and log info (bin). docs/reference/wire.md has the layout and the negotiation.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from headgate.errors import WireError
from headgate.limit.messages import Accounting, to_milliseconds, topic
from headgate.release import Status

BATCH = b"\0headgate.batch.1\0"
"""The prefix of every batch topic. No domain has it, since "domains should not contain nulls in their names"."""

HOLDS = b"\0headgate.holds.1\0"
"""The prefix of a subscription that asks for the holds of a domain: a number of the subscriber and the topic follow."""

HOLDS_SIZE = len(HOLDS) + 8
"""Bytes before the topic of such a subscription, and of the controls that answer it: no other gatekeeper gets them."""

MASTERS = b"\0headgate.masters.1\0"
"""The prefix of a subscription that says by a digest which masters the subscriber lists: eight bytes and a letter."""

MASTERS_SIZE = len(MASTERS) + 9
"""Bytes of such a subscription before the number of the subscriber, by which those that are connected are counted."""

MAX_RECORDS = 256
"""Maximum records in a batch; a larger one is dropped."""

MAX_LOGINFO_SIZE = 255
"""Maximum bytes of log info sent, so that a full queue stays small."""

STATUS_OF = (Status.ACCEPTED, Status.DELAYED, Status.REJECTED)
"""The status by the first item of a record."""

AccountingRecord = tuple[Literal[0, 1, 2], bytes, int, int, bytes]
"""Status, identifier, received, delayed, log info."""

# The first byte of a msgpack array contains the number of its items, at most 15, or the number of bytes that do.
_FIXED_ARRAY, _MAX_FIXED_ARRAY, _ARRAY_DIGITS = 0x90, 15, {0xDC: 2, 0xDD: 4}

_ACCEPTED, _DELAYED = Status.ACCEPTED, Status.DELAYED  # an attribute of an Enum is slow to read

_encoder = msgspec.msgpack.Encoder()
_Records = Annotated[list[AccountingRecord], msgspec.Meta(max_length=MAX_RECORDS)]
_records: msgspec.msgpack.Decoder[list[AccountingRecord]] = msgspec.msgpack.Decoder(_Records)


def batch_topic(domain: str) -> bytes:
    """Return the first frame of a batch for `domain`. Raises `WireError` for a domain with a NUL in it."""
    return BATCH + topic(domain)


def to_record(accounting: Accounting) -> AccountingRecord:
    """Return the record of an accounting message, with log info cut to `MAX_LOGINFO_SIZE`."""
    status, loginfo = accounting.status, accounting.loginfo
    if len(loginfo) > MAX_LOGINFO_SIZE:
        loginfo = loginfo[:MAX_LOGINFO_SIZE]
    if status is _ACCEPTED:
        return (0, accounting.identifier, to_milliseconds(accounting.received), 0, loginfo)
    delayed = to_milliseconds(accounting.release) if status is _DELAYED else 0
    return (
        1 if status is _DELAYED else 2,
        accounting.identifier,
        to_milliseconds(accounting.received),
        delayed,
        loginfo,
    )


def encode_batch(records: Iterable[AccountingRecord]) -> bytes:
    """Return the second frame of a batch; the caller passes at most `MAX_RECORDS`."""
    return _encoder.encode(list(records))


def public_topic(frame: bytes) -> bytes:
    """Return the topic of a control or a subscription, without what makes it one for a single subscriber."""
    return frame[HOLDS_SIZE:] if frame.startswith(HOLDS) else frame


def record_count(frames: Sequence[bytes]) -> int:
    """Return the number of records that a message of accounting claims to have, without decoding them.

    Raises `WireError` for a batch whose second frame does not begin as an array of 1 to `MAX_RECORDS` items.
    """
    if not frames[0].startswith(BATCH):
        return 1
    payload = b"".join(frames[1:2])
    head = payload[0] if payload else 0
    digits = _ARRAY_DIGITS.get(head, 0)
    size = int.from_bytes(payload[1 : 1 + digits]) if digits else head - _FIXED_ARRAY
    if not 0 < size <= (MAX_RECORDS if digits else _MAX_FIXED_ARRAY):
        raise WireError(f"invalid batch: expected an array of 1 to {MAX_RECORDS} records; see docs/reference/wire.md")
    return size


def decode_batch(payload: bytes) -> list[AccountingRecord]:
    """Return the records of a batch.

    Raises `WireError` for a payload that is not an array of at most `MAX_RECORDS` records; of a longer one, only the
    head is read.
    """
    try:
        return _records.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:  # msgspec recurses into nested values up to Python's limit
        raise WireError(f"invalid batch ({error}); see docs/reference/wire.md") from None
