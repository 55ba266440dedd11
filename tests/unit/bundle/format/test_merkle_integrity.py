"""The draft's own examples (draft-thomson-http-mice-03, section 4), and what no decoder may take."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.merkle_integrity import (
    MerkleIntegrityError,
    MiEncoded,
    PayloadLayout,
    mi_encode,
    parse_mi_digest,
    payload_layout_parser,
    verify_payload,
    without_mi_coding,
)
from headgate.bundle.model import Location

MESSAGE = b"When I grow up, I want to be a watermelon"
ONE_RECORD = "mi-sha256-03=dcRDgR2GM35DluAV13PzgnG6+pvQwPywfFvAu1UeFrs="
THREE_RECORDS = "mi-sha256-03=IVa9shfs0nyKEhHqtB3WVNANJ2Njm5KjQLjRtnbkYJ4="
SECOND_PROOF = base64.b64decode("OElbplJlPK+Rv6JNK6p5/515IaoPoZo+2elWL7OQ60A=")
THIRD_PROOF = base64.b64decode("iPMpmgExHPrbEX3/RvwP4d16fWlK4l++p75PUu/KyN0=")
EMPTY = "mi-sha256-03=bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0="


def encoded(content: bytes, record_size: int = 4096) -> tuple[bytes, MiEncoded]:
    proven = mi_encode(memoryview(content), record_size)
    return b"".join(proven), proven


def decoded(content: bytes, digest: str) -> bytes:
    proof = parse_mi_digest(digest)
    assert proof is not None
    layout = verify_payload(memoryview(content), proof)
    return taken(layout, content, 0, layout.length)


def taken(layout: PayloadLayout, payload: bytes, start: int, stop: int) -> bytes:
    return b"".join(payload[offset : offset + length] for offset, length in layout.spans(start, stop))


def test_a_message_of_one_record() -> None:
    content, proven = encoded(MESSAGE, 41)
    assert content == (41).to_bytes(8, "big") + MESSAGE
    assert proven.digest == ONE_RECORD


def test_a_message_of_three_records() -> None:
    content, proven = encoded(MESSAGE, 16)
    records = [MESSAGE[:16], SECOND_PROOF, MESSAGE[16:32], THIRD_PROOF, MESSAGE[32:]]
    assert content == (16).to_bytes(8, "big") + b"".join(records)
    assert proven.digest == THREE_RECORDS


def test_the_encoding_of_nothing_is_nothing() -> None:
    content, proven = encoded(b"")
    assert (content, proven.digest) == (b"", EMPTY)
    assert decoded(b"", EMPTY) == b""


@given(st.binary(max_size=200), st.integers(1, 70))
def test_what_is_encoded_is_decoded_again(content: bytes, record_size: int) -> None:
    written, proven = encoded(content, record_size)
    assert len(written) == proven.length
    assert decoded(written, proven.digest) == content


@given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.data())
def test_no_byte_can_change_and_none_can_be_missing(content: bytes, record_size: int, data: st.DataObject) -> None:
    written, proven = encoded(content, record_size)
    position = data.draw(st.integers(8, len(written) - 1))
    changed = bytearray(written)
    changed[position] ^= data.draw(st.integers(1, 255))
    for wrong in (bytes(changed), written[:position], written + b"\0"):
        with pytest.raises(MerkleIntegrityError):
            decoded(wrong, proven.digest)


@given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.integers(0, 20_000))
def test_another_record_size_changes_no_payload(content: bytes, record_size: int, other: int) -> None:
    """It is not proven by itself: a payload of one record may claim any that is long enough, and is still the same."""
    written, proven = encoded(content, record_size)
    try:
        found = decoded(other.to_bytes(8, "big") + written[8:], proven.digest)
    except MerkleIntegrityError:
        found = content
    assert found == content


@given(st.binary(max_size=100), st.integers(1, 40), st.data())
def test_any_part_is_found_without_what_is_before_it(content: bytes, record_size: int, data: st.DataObject) -> None:
    written, proven = encoded(content, record_size)
    layout = verify_payload(memoryview(written), parse_mi_digest(proven.digest) or b"")
    assert layout.length == len(content)
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))
    assert taken(layout, written, start, stop) == content[start:stop]


def test_a_payload_that_is_all_content_has_one_part() -> None:
    assert list(PayloadLayout(9).spans(2, 7)) == [(2, 5)]
    assert list(PayloadLayout(9).spans(2, 2)) == []


@pytest.mark.parametrize("byte", [8, 8 + 5 * 4128, -1])
def test_a_refusal_says_which_record_and_where(byte: int) -> None:
    content, proven = encoded(bytes(4096 * 600 + 1))
    changed = bytearray(content)
    changed[byte] ^= 1
    number = (byte % len(content)) // 4128
    with pytest.raises(MerkleIntegrityError, match=f"record {number} is") as caught:
        verify_payload(memoryview(changed), parse_mi_digest(proven.digest) or b"")
    assert caught.value.offset == 8 + number * 4128


def test_no_more_is_asked_for_at_once_than_a_reader_should_hold() -> None:
    content, proven = encoded(bytes(4096 * 600 + 1))
    asked = []

    def read(offset: int, length: int) -> bytes:
        asked.append((offset, offset + length))
        return content[offset - 1000 : offset + length - 1000]

    parser = payload_layout_parser(Location(1000, len(content)), parse_mi_digest(proven.digest) or b"")
    assert drive(parser, read) == PayloadLayout(4096 * 600 + 1, 4096)
    assert [start for start, _ in asked] == [1000, *(stop for _, stop in asked[:-1])]
    assert asked[-1][1] == 1000 + len(content)
    assert max(stop - start for start, stop in asked) <= 1 << 20
    assert len(asked) < 6


def test_what_ends_before_it_should_is_refused() -> None:
    content, proven = encoded(bytes(9000))
    for there in (0, 7, 8, 5000, len(content) - 1):
        parser = payload_layout_parser(Location(0, len(content)), parse_mi_digest(proven.digest) or b"")
        with pytest.raises(MerkleIntegrityError):
            drive(parser, reads_from(content[:there]))


@pytest.mark.parametrize("record_size", [0, 16_385, 2**64 - 1])
def test_a_record_size_that_a_reader_need_not_keep_is_refused(record_size: int) -> None:
    proof = hashlib.sha256(MESSAGE + b"\0").digest()
    with pytest.raises(MerkleIntegrityError, match="record size"):
        verify_payload(memoryview(record_size.to_bytes(8, "big") + MESSAGE), proof)


def test_the_largest_record_is_read() -> None:
    content, proven = encoded(bytes(16_384), 16_384)
    assert decoded(content, proven.digest) == bytes(16_384)


def test_record_size_alone_is_not_an_empty_payload() -> None:
    with pytest.raises(MerkleIntegrityError, match="ends inside record 0"):
        decoded((16).to_bytes(8, "big"), EMPTY)


@pytest.mark.parametrize(
    ("digest", "found"),
    [
        (ONE_RECORD, True),
        (f"sha-256=AAAA, {ONE_RECORD}", True),
        (f"{ONE_RECORD},sha-256=AAAA", True),
        (ONE_RECORD.replace("mi-sha", "MI-SHA"), True),
        ("", False),
        ("sha-256=AAAA", False),
        ("mi-sha256-03=", False),
        ("mi-sha256-03=AAAA", False),
        (ONE_RECORD[:-1], False),
        (ONE_RECORD.replace("+", "-"), False),
        ("mi-sha256-03=é", False),
    ],
)
def test_the_proof_is_found_in_a_digest_header(digest: str, found: bool) -> None:
    assert (parse_mi_digest(digest) is not None) is found


@pytest.mark.parametrize(
    ("codings", "left"),
    [
        ("mi-sha256-03", ""),
        ("MI-SHA256-03", ""),
        ("gzip, mi-sha256-03", "gzip"),
        ("gzip,\tbr ,mi-sha256-03,", "gzip, br"),
        ("mi-sha256-03, gzip", None),
        ("mi-sha256", None),
        ("gzip", None),
        ("", None),
    ],
)
def test_the_coding_is_undone_where_it_was_the_last(codings: str, left: str | None) -> None:
    assert without_mi_coding(codings) == left
