"""headgate.bundle.format.merkle_integrity: the draft's examples (section 4), and malformed payloads."""

import base64
import hashlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle import BundleWriter, open_bundle
from headgate.bundle.format.cbor import StepError
from headgate.bundle.format.incremental import drive, reads_from
from headgate.bundle.format.merkle_integrity import (
    MiEncoded,
    PayloadLayout,
    mi_encode,
    parse_mi_digest,
    payload_layout_parser,
    without_mi_coding,
)
from headgate.bundle.model import Location
from headgate.bundle.reader import Bundle, DecodedResponse, locate
from headgate.errors import ResponseError
from tests import signers

MESSAGE = b"When I grow up, I want to be a watermelon"
ONE_RECORD = "mi-sha256-03=dcRDgR2GM35DluAV13PzgnG6+pvQwPywfFvAu1UeFrs="
THREE_RECORDS = "mi-sha256-03=IVa9shfs0nyKEhHqtB3WVNANJ2Njm5KjQLjRtnbkYJ4="
SECOND_PROOF = base64.b64decode("OElbplJlPK+Rv6JNK6p5/515IaoPoZo+2elWL7OQ60A=")
THIRD_PROOF = base64.b64decode("iPMpmgExHPrbEX3/RvwP4d16fWlK4l++p75PUu/KyN0=")
EMPTY = "mi-sha256-03=bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0="


def encoded(content: bytes, record_size: int = 4096) -> tuple[bytes, MiEncoded]:
    proven = mi_encode(lambda: memoryview(content), record_size)
    return b"".join(proven), proven


def decoded(content: bytes, digest: str) -> bytes:
    proof = parse_mi_digest(digest)
    assert proof is not None
    layout = verify_payload(content, proof)
    return taken(layout, content, 0, layout.length)


def verify_payload(payload: bytes, proof: bytes) -> PayloadLayout:
    return drive(payload_layout_parser(Location(0, len(payload)), proof), reads_from(payload))


def taken(layout: PayloadLayout, payload: bytes, start: int, stop: int) -> bytes:
    return bytes(layout.read(lambda offset, length: payload[offset : offset + length], start, stop))


def test_example_of_three_records() -> None:
    content, proven = encoded(MESSAGE, 16)
    records = [MESSAGE[:16], SECOND_PROOF, MESSAGE[16:32], THIRD_PROOF, MESSAGE[32:]]
    assert content == (16).to_bytes(8, "big") + b"".join(records)
    assert proven.digest == THREE_RECORDS


def test_empty_content_has_an_empty_encoding() -> None:
    content, proven = encoded(b"")
    assert (content, proven.digest) == (b"", EMPTY)
    assert decoded(b"", EMPTY) == b""


@given(st.binary(max_size=200), st.integers(1, 70))
def test_encoded_content_is_decoded(content: bytes, record_size: int) -> None:
    written, proven = encoded(content, record_size)
    assert len(written) == proven.length
    assert decoded(written, proven.digest) == content


@given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.data())
def test_changed_and_cut_payloads_are_refused(content: bytes, record_size: int, data: st.DataObject) -> None:
    written, proven = encoded(content, record_size)
    position = data.draw(st.integers(8, len(written) - 1))
    changed = bytearray(written)
    changed[position] ^= data.draw(st.integers(1, 255))
    for wrong in (bytes(changed), written[:position], written + b"\0"):
        with pytest.raises(StepError):
            decoded(wrong, proven.digest)


@given(st.binary(min_size=1, max_size=100), st.integers(1, 40), st.integers(0, 20_000))
def test_every_record_size_gives_the_same_content(content: bytes, record_size: int, other: int) -> None:
    """It is not proven by itself: a payload of one record may claim any that is long enough, and is still the same."""
    written, proven = encoded(content, record_size)
    try:
        found = decoded(other.to_bytes(8, "big") + written[8:], proven.digest)
    except StepError:
        found = content
    assert found == content


@given(st.binary(max_size=100), st.integers(1, 40), st.data())
def test_parts_are_found_without_the_content_before_them(content: bytes, record_size: int, data: st.DataObject) -> None:
    written, proven = encoded(content, record_size)
    layout = verify_payload(written, parse_mi_digest(proven.digest) or b"")
    assert layout.length == len(content)
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))
    assert taken(layout, written, start, stop) == content[start:stop]


@pytest.mark.parametrize("byte", [8, 8 + 5 * 4128, -1])
def test_errors_name_the_record_and_its_offset(byte: int) -> None:
    content, proven = encoded(bytes(4096 * 600 + 1))
    changed = bytearray(content)
    changed[byte] ^= 1
    number = (byte % len(content)) // 4128
    with pytest.raises(StepError, match=f"record {number} is") as caught:
        verify_payload(changed, parse_mi_digest(proven.digest) or b"")
    assert caught.value.offset == 8 + number * 4128


def test_read_requests_are_bounded() -> None:
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


@pytest.mark.parametrize("record_size", [0, 16_385, 2**64 - 1])
def test_record_sizes_over_the_limit_are_refused(record_size: int) -> None:
    proof = hashlib.sha256(MESSAGE + b"\0").digest()
    with pytest.raises(StepError, match="record size"):
        verify_payload(record_size.to_bytes(8, "big") + MESSAGE, proof)


def test_records_of_the_maximum_size_are_read() -> None:
    content, proven = encoded(bytes(16_384), 16_384)
    assert decoded(content, proven.digest) == bytes(16_384)


def test_record_size_alone_is_not_an_empty_payload() -> None:
    with pytest.raises(StepError, match="ends inside record 0"):
        decoded((16).to_bytes(8, "big"), EMPTY)


def test_proof_is_parsed_from_the_digest_header() -> None:
    for digest, found in (
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
    ):
        assert (parse_mi_digest(digest) is not None) is found, digest


def test_coding_is_removed_if_it_is_the_last() -> None:
    for codings, left in (
        ("mi-sha256-03", ""),
        ("MI-SHA256-03", ""),
        ("gzip, mi-sha256-03", "gzip"),
        ("gzip,\tbr ,mi-sha256-03,", "gzip, br"),
        ("mi-sha256-03, gzip", None),
        ("mi-sha256", None),
        ("gzip", None),
        ("", None),
    ):
        assert without_mi_coding(codings) == left, codings


URL = "https://example.com/"
TEXT = {"content-type": "text/plain"}
LONG = b"".join(b"%07d\n" % number for number in range(2_000))


def bundle_of(headers: Any, payload: bytes, *, status: int = 200) -> bytes:
    out = io.BytesIO()
    with BundleWriter(out, version="b1", primary_url=URL, manifest_url=URL) as writer:
        writer.add(URL, status=status, headers={**TEXT, **headers}, payload=payload)
    return out.getvalue()


def found(bundle: Bundle, url: str = URL, variant_key: str | None = None) -> DecodedResponse:
    return bundle.decode(locate(bundle.metadata, url, variant_key))


def content(response: DecodedResponse) -> bytes:
    return b"".join(response.pieces(0, response.length))


def test_content_length_is_that_of_the_decoded_content() -> None:
    coded = mi_encode(lambda: memoryview(LONG))
    headers = {"content-encoding": "MI-SHA256-03", "digest": f"sha-256=AAAA, {coded.digest}"}
    with open_bundle(bundle_of({**headers, "content-length": str(coded.length)}, b"".join(coded))) as bundle:
        shown = found(bundle)
        assert shown.decoded.headers == {**TEXT, "content-length": str(len(LONG))}
        assert content(shown) == LONG


@pytest.mark.parametrize("codings", ["", "gzip", "mi-sha256-03, gzip", "mi-sha256"])
def test_other_responses_are_unchanged(codings: str) -> None:
    headers = {"digest": "mi-sha256-03=AAAA", "content-length": "9"} | (
        {"content-encoding": codings} if codings else {}
    )
    with open_bundle(bundle_of(headers, LONG)) as bundle:
        shown = found(bundle)
        assert shown.decoded.headers == bundle.response(URL).stored_headers
        assert without_mi_coding(shown.headers.get("content-encoding", "")) is None
        assert content(shown) == LONG
        assert len(list(shown.pieces(0, shown.length))) == 1


@pytest.mark.parametrize("digest", [{}, {"digest": "sha-256=AAAA"}, {"digest": "mi-sha256-03=AAAA"}])
def test_coded_responses_without_a_digest_are_refused(digest: dict[str, str]) -> None:
    payload = b"".join(mi_encode(lambda: memoryview(LONG)))
    source = bundle_of({"content-encoding": "mi-sha256-03", **digest}, payload)
    with (
        open_bundle(source) as bundle,
        pytest.raises(ResponseError, match="a Digest header with mi-sha256-03 is missing") as caught,
    ):
        found(bundle)
    assert source[caught.value.offset :].startswith(payload)


@pytest.mark.parametrize(("byte", "number"), [(8, 0), (4103, 0), (4104, 0), (4136, 1), (8 + 2 * 4128, 2), (-1, 3)])
def test_changed_payloads_are_refused_with_their_offset(byte: int, number: int) -> None:
    before = b"anything " * 10
    signed = signers.vouched(bundle_of({}, LONG))
    source = before + signers.tampered(signed, URL, byte=byte)
    begin = before + signed[: signed.index(LONG[:4096]) - 8]
    for payload in (source, io.BytesIO(source)):
        with open_bundle(payload, from_end=True) as bundle, pytest.raises(ResponseError) as caught:
            found(bundle)
        error = caught.value
        assert (error.reason, error.step) == (
            f"record {number} is not what its digest says", "draft-thomson-http-mice-03, 2.2",
        )  # fmt: skip
        assert error.offset == len(begin) + 8 + number * 4128
        assert error.fallback_url == URL
