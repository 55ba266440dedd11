"""Records between the sidecar and nginx. Those that nginx reads are tested in the real one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import WireError
from headgate.origin.sidecar.nginx_lua import MAX_RECEIVED_BYTES, Record, RecordReader, encode_record

RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from([b"accepted", b"delayed", b"status", b"x"]),
        st.integers(0, 10**15 - 1),
        st.integers(0, 10**15 - 1),
        st.binary(max_size=300),
    ),
    max_size=6,
)


def test_a_record_is_a_line_with_a_size_and_bytes():
    assert encode_record(b"hold", 1_700_000_000_123, 0, b"api\0id") == b"hold 1700000000123 0 6 api\0id\n"
    assert encode_record(b"alive") == b"alive 0 0 0 \n"


@given(records=RECORDS, cuts=st.lists(st.integers(0, 2_500), max_size=8))
def test_records_are_read_whatever_their_bytes_and_however_they_are_divided(records, cuts):
    data = b"".join(encode_record(*record) for record in records)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = RecordReader()
    found = [record for start, end in pairwise(edges) for record in reader.feed(data[start:end])]
    assert found == records


@given(data=st.binary(max_size=400))
def test_other_bytes_are_an_error_or_ask_for_more(data):
    reader = RecordReader()
    try:
        for _ in reader.feed(data):
            pass
    except WireError:
        return
    assert len(reader._rest) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"accepted 1 2 3 abcd",
        b"x" * 80,
        b"Accepted 1 2 3 abc\n" + b" " * 80,
        b"accepted -1 2 3 abc\n" + b" " * 80,
        b"accepted 1  2 3 abc\n" + b" " * 80,
        b"accepted 1 2 %d " % (MAX_RECEIVED_BYTES + 1),
        b"accepted 1 2 99999999 x" + b" " * 80,
        b"accepted 1234567890123456 2 3 abc\n" + b" " * 80,
    ],
    ids=["longer", "no record", "capital", "negative", "two spaces", "too long", "size digits", "number digits"],
)
def test_a_malformed_record_is_an_error(data):
    with pytest.raises(WireError):
        list(RecordReader().feed(data))


def test_an_incomplete_record_is_bounded():
    reader = RecordReader()
    assert list(reader.feed(b"accepted 1 2 %d " % MAX_RECEIVED_BYTES + b"x" * MAX_RECEIVED_BYTES)) == []
    with pytest.raises(WireError):
        list(reader.feed(b"x"))
