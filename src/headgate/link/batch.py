"""Batched accounting: many records of one domain in one message.

This file knows nothing of sockets. A batch is two frames: the domain's batch topic, and a msgpack array of at most
`MOST_RECORDS` records, each an array of five that stands for frames 1 to 5 of the document's accounting message:
status (0 accepted, 1 delayed, 2 rejected), identifier (bin), received and delayed (integer milliseconds since 1970;
delayed is 0 unless the status is 1) and log info (bin). docs/reference/wire.md has the layout and the negotiation.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from headgate.errors import WireError
from headgate.limit.accounting import Accounting
from headgate.limit.wire import to_milliseconds, topic
from headgate.release import Status

__all__ = [
    "BATCH",
    "MOST_LOGINFO",
    "MOST_RECORDS",
    "STATUS_OF",
    "Record",
    "batch_topic",
    "decode_batch",
    "encode_batch",
    "record_of",
]

BATCH = b"\0headgate.batch.1\0"
"""What every batch topic begins with: no domain can, since "domains should not contain nulls in their names"."""

MOST_RECORDS = 256
"""Records in the largest batch; a larger one is not read at all."""

MOST_LOGINFO = 255
"""Bytes of log info that are sent, so that a full queue stays small."""

STATUS_OF = (Status.ACCEPTED, Status.DELAYED, Status.REJECTED)
"""A record's first item to its meaning."""

Record = tuple[Literal[0, 1, 2], bytes, int, int, bytes]
"""Status, identifier, received, delayed, log info."""

_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(Annotated[list[Record], msgspec.Meta(max_length=MOST_RECORDS)])
_pieces = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_RECORDS)])
_record = msgspec.msgpack.Decoder(Record)


def batch_topic(domain: str) -> bytes:
    """Give the first frame of a batch for `domain`. Raises `WireError` for a domain with a NUL in it."""
    return BATCH + topic(domain)


def record_of(accounting: Accounting) -> Record:
    """Give the record that stands for an accounting message; log info is cut at `MOST_LOGINFO`."""
    loginfo = accounting.loginfo[:MOST_LOGINFO]
    received = to_milliseconds(accounting.received)
    if accounting.status is Status.DELAYED:
        return (1, accounting.identifier, received, to_milliseconds(accounting.release), loginfo)
    return (0 if accounting.status is Status.ACCEPTED else 2, accounting.identifier, received, 0, loginfo)


def encode_batch(records: Iterable[Record]) -> bytes:
    """Give the second frame of a batch; who calls it keeps to `MOST_RECORDS`."""
    return _encoder.encode(list(records))


def decode_batch(payload: bytes) -> tuple[list[Record], int]:
    """Give the records of a batch, and how many more of it were no records and are left out.

    Raises `WireError` for a payload that is no array of at most `MOST_RECORDS` items: nothing of it is kept, and of
    one too long nothing but its head is read.
    """
    try:
        return _records.decode(payload), 0
    except msgspec.ValidationError:
        return _salvaged(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"invalid batch: not msgpack ({error}); see docs/reference/wire.md") from None


def _salvaged(payload: bytes) -> tuple[list[Record], int]:
    """Read a batch record by record, so that one that is off costs only itself."""
    try:
        pieces = _pieces.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:  # msgspec follows what is nested as deep as Python allows
        raise WireError(
            f"invalid batch: expected an array of at most {MOST_RECORDS} records ({error}); see docs/reference/wire.md"
        ) from None
    records: list[Record] = []
    for piece in pieces:
        try:
            records.append(_record.decode(piece))
        except msgspec.DecodeError:
            continue
    return records, len(pieces) - len(records)
