import msgspec
import pytest

from headgate.errors import WireError
from headgate.limit import Accounting
from headgate.limit.messages import topic
from headgate.link.batch import (
    BATCH,
    MAX_LOGINFO_SIZE,
    MAX_RECORDS,
    STATUS_OF,
    batch_topic,
    decode_batch,
    encode_batch,
    record_count,
    to_record,
)
from headgate.release import Status

GOOD = (0, b"192.0.2.1", 1_700_000_000_000, 0, b"")


def packed(*items):
    return msgspec.msgpack.encode(list(items))


def test_the_batch_topic_cannot_be_a_domain():
    assert b"\0" in BATCH[:-1]
    assert not topic("").startswith(BATCH)
    with pytest.raises(WireError):
        topic(BATCH.decode())
    assert batch_topic("api") == b"\0headgate.batch.1\0api\0"


@pytest.mark.parametrize(
    ("accounting", "record"),
    [
        (Accounting("api", Status.ACCEPTED, b"a", 1.5, 1.5), (0, b"a", 1_500, 0, b"")),
        (Accounting("api", Status.DELAYED, b"\xff\xfe", 1.5, 2.0004, b"log"), (1, b"\xff\xfe", 1_500, 2_001, b"log")),
        (Accounting("api", Status.REJECTED, b"", 1.5, 99.0), (2, b"", 1_500, 0, b"")),
    ],
)
def test_a_record_stands_for_frames_1_to_5(accounting, record):
    assert to_record(accounting) == record
    assert STATUS_OF[record[0]] is accounting.status
    assert decode_batch(encode_batch([record])) == [record]


def test_a_batch_is_exactly_these_bytes():
    """The example of docs/reference/wire.md."""
    assert encode_batch([(1, b"id", 1_000, 1_500, b"")]) == bytes.fromhex("91 95 01 c4026964 cd03e8 cd05dc c400")


def test_log_info_is_truncated():
    accounting = Accounting("api", Status.ACCEPTED, b"a", 1.0, 1.0, b"x" * 10_000)
    assert to_record(accounting)[4] == b"x" * MAX_LOGINFO_SIZE


BAD_RECORDS = [
    None, 0, b"bytes", [], {"status": 0},
    [0, b"id", 1], [3, b"id", 1, 0, b""], [-1, b"id", 1, 0, b""], [True, b"id", 1, 0, b""], [0, "text", 1, 0, b""],
    [0, b"id", 1.5, 0, b""], [0, b"id", 1, None, b""], [0, b"id", 1, 0, b"", b"more"], [0, [[[[]]]], 1, 0, b""],
]  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x00",
        b"\x91",
        packed(GOOD)[:-1],
        packed(GOOD) + b"\0",
        b"\xdd\xff\xff\xff\xff",
        b"\xdd\x00\x0f\x42\x40" + b"\x90" * 1_000_000,
        b"\x91" * 100_000,
        packed(GOOD)[:1] + b"\x95" + b"\x91" * 100_000,
        msgspec.msgpack.encode({"records": []}),
        packed(*[GOOD] * (MAX_RECORDS + 1)),
        *(packed(GOOD, bad, GOOD) for bad in BAD_RECORDS),
    ],
)
def test_a_malformed_batch_is_rejected_whole(payload):
    with pytest.raises(WireError, match=r"docs/reference/wire\.md"):
        decode_batch(payload)


def test_the_largest_batch_is_read():
    assert decode_batch(packed(*[GOOD] * MAX_RECORDS)) == [GOOD] * MAX_RECORDS


@pytest.mark.parametrize("count", [1, 15, 16, 255, 256])
def test_the_number_of_records_is_read_from_the_head(count):
    assert record_count([BATCH, encode_batch([(0, b"id", 1, 0, b"")] * count)]) == count
    assert record_count([BATCH, b"\xdd" + count.to_bytes(4)]) == count


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x90", b"\xa1a", b"\x81\x01\x02", b"\xdc", b"\xdc\x00", b"\xdc\x00\x00", b"\xdc\x01\x01", b"\xdd\0\1\0\0"],
)
def test_a_payload_that_does_not_begin_as_a_batch_is_an_error(payload):
    with pytest.raises(WireError, match="expected an array of 1 to 256 records"):
        record_count([BATCH, payload])
