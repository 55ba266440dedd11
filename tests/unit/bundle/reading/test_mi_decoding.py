import gzip
import io
from pathlib import Path
from typing import Any

import pytest

from headgate.bundle import BundleWriter, open_bundle
from headgate.bundle.format.merkle_integrity import mi_encode
from headgate.bundle.reading.lookup import locate
from headgate.bundle.reading.mi_decoding import DecodedResponse, decode_response, has_mi_coding
from headgate.bundle.reading.reader import Bundle
from headgate.errors import ResponseError
from tests import signers

VECTORS = Path(__file__).parents[3] / "vectors" / "bundle"
URL = "https://example.com/"
TEXT = {"content-type": "text/plain"}
LONG = b"".join(b"%07d\n" % number for number in range(2_000))
ZIPPED = gzip.compress(LONG, mtime=0)


def bundle_of(headers: Any, payload: bytes, *, status: int = 200) -> bytes:
    out = io.BytesIO()
    with BundleWriter(out, version="b1", primary_url=URL, manifest_url=URL) as writer:
        writer.add(URL, status=status, headers={**TEXT, **headers}, payload=payload)
    return out.getvalue()


def found(bundle: Bundle, url: str = URL, variant_key: str | None = None, **options: Any) -> DecodedResponse:
    location = locate(bundle.metadata, url, variant_key)
    return decode_response(bundle, location, bundle.load(location), **options)


def content(response: DecodedResponse) -> bytes:
    return b"".join(response.pieces(0, response.length))


@pytest.mark.parametrize("name", ["small_b1.wbn", "variants_b1.wbn"])
def test_what_is_signed_is_shown_as_it_was_before(name: str) -> None:
    plain = (VECTORS / name).read_bytes()
    with (
        open_bundle(plain, profile="compat") as before,
        open_bundle(signers.vouched(plain, "example.com", "variants.example.com"), profile="compat") as after,
    ):
        assert after.metadata.vouched_subsets
        for url, variant_key, location in before.locations():
            was, shown = before.load(location), found(after, url, variant_key)
            assert (shown.status, shown.decoded.headers, shown.headers) == (was.status, was.stored_headers, was.headers)
            assert content(shown) == was.payload
            assert has_mi_coding(after.response(url, variant_key).stored_headers)


@pytest.mark.parametrize("payload", [b"", b"x", LONG, LONG[:4096], LONG[:8192]])
def test_any_part_of_it_is_found(payload: bytes) -> None:
    with open_bundle(signers.vouched(bundle_of({}, payload))) as bundle:
        shown = found(bundle)
        assert shown.length == len(payload)
        for start in (0, 1, 4095, 4096, 4097):
            for stop in (0, 1, 4096, 4097, 8192, 99_999):
                pieces = list(shown.pieces(start, stop))
                assert b"".join(pieces) == payload[start:stop]
                assert all(pieces)


def test_nothing_is_copied() -> None:
    with open_bundle(signers.vouched(bundle_of({}, LONG))) as bundle:
        shown = found(bundle)
        pieces = list(shown.pieces(0, shown.length))
        assert [len(piece) for piece in pieces] == [4096, 4096, 4096, len(LONG) - 3 * 4096]
        assert all(piece.obj is bundle.raw.obj for piece in pieces)


def test_other_codings_and_the_entity_tag_stay() -> None:
    headers = {"content-encoding": "gzip", "etag": '"strong"', "repr-digest": "sha-256=:AAAA:"}
    with open_bundle(signers.vouched(bundle_of(headers, ZIPPED))) as bundle:
        assert bundle.response(URL).stored_headers["content-encoding"] == "gzip, mi-sha256-03"
        shown = found(bundle)
        assert shown.decoded.headers == {**TEXT, **headers}
        assert gzip.decompress(content(shown)) == LONG


def test_a_length_is_that_of_what_is_shown() -> None:
    coded = mi_encode(memoryview(LONG))
    headers = {"content-encoding": "MI-SHA256-03", "digest": f"sha-256=AAAA, {coded.digest}"}
    with open_bundle(bundle_of({**headers, "content-length": str(coded.length)}, b"".join(coded))) as bundle:
        shown = found(bundle)
        assert shown.decoded.headers == {**TEXT, "content-length": str(len(LONG))}
        assert content(shown) == LONG


@pytest.mark.parametrize("codings", ["", "gzip", "mi-sha256-03, gzip", "mi-sha256"])
def test_what_is_not_so_coded_is_left_alone(codings: str) -> None:
    headers = {"digest": "mi-sha256-03=AAAA", "content-length": "9"} | (
        {"content-encoding": codings} if codings else {}
    )
    with open_bundle(bundle_of(headers, LONG)) as bundle:
        shown = found(bundle)
        assert shown.decoded.headers == bundle.response(URL).stored_headers
        assert not has_mi_coding(shown.headers)
        assert content(shown) == LONG
        assert len(list(shown.pieces(0, shown.length))) == 1


@pytest.mark.parametrize("digest", [{}, {"digest": "sha-256=AAAA"}, {"digest": "mi-sha256-03=AAAA"}])
def test_without_a_digest_nothing_is_shown(digest: dict[str, str]) -> None:
    payload = b"".join(mi_encode(memoryview(LONG)))
    source = bundle_of({"content-encoding": "mi-sha256-03", **digest}, payload)
    with (
        open_bundle(source) as bundle,
        pytest.raises(ResponseError, match="a Digest header with mi-sha256-03 is missing") as caught,
    ):
        found(bundle)
    assert source[caught.value.offset :].startswith(payload)


@pytest.mark.parametrize(("byte", "number"), [(8, 0), (4103, 0), (4104, 0), (4136, 1), (8 + 2 * 4128, 2), (-1, 3)])
def test_a_payload_that_was_changed_is_refused_and_where(byte: int, number: int) -> None:
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


def test_an_empty_payload_is_checked_as_well() -> None:
    coded = {"content-encoding": "mi-sha256-03", "digest": mi_encode(memoryview(b"")).digest}
    with open_bundle(bundle_of(coded, b"", status=301)) as bundle:
        assert (content(found(bundle)), found(bundle).decoded.headers) == (b"", TEXT)
    coded["digest"] = mi_encode(memoryview(b"x")).digest
    with open_bundle(bundle_of(coded, b"")) as bundle, pytest.raises(ResponseError, match="record 0"):
        found(bundle)


def test_used_is_called_after_each_piece() -> None:
    used: list[memoryview] = []
    with open_bundle(signers.vouched(bundle_of({}, LONG * 200))) as bundle:
        shown = found(bundle, used=used.append)
        assert used == [shown.payload] * 5  # the record size, and four times a mebibyte at most
