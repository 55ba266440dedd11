import builtins
import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import brotli
import pytest

from headgate.bundle.files.payloads import Spool, payload_chunks, prepare_payload
from headgate.bundle.model import Exchange, Version
from headgate.bundle.sources.codings import (
    DECODERS,
    ENCODERS,
    DecodingError,
    compress,
    decode_chunks,
    encode_chunks,
    is_compressible,
    require_coding,
)
from headgate.errors import ConfigurationError, HeadgateError, MissingExtra

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOISE = Random(1).randbytes(200_000)
PAYLOADS = [b"", b"a", b"hello " * 1_000, NOISE, b"z" * 3_000_000]


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODE: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("coding", ENCODERS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_encoded_bytes_decode_in_bounded_pieces(coding: str, payload: bytes) -> None:
    written = b"".join(encode_chunks(pieces(payload, 65_536), coding, length=len(payload)))
    assert b"".join(encode_chunks([payload], coding, length=len(payload))) == written or len(payload) > 65_536
    for size in (7, 65_536, 1 << 24):
        if size * 20_000 > len(written):
            given = list(decode_chunks(pieces(written, size), coding))
            assert b"".join(given) == payload
            assert max(map(len, given), default=0) <= 1 << 17


@pytest.mark.parametrize(
    ("coding", "decode"), [("gzip", gzip.decompress), ("br", brotli.decompress), ("zstd", zstd.decompress)]
)
def test_other_decoders_read_our_codings(coding: str, decode: Callable[[bytes], bytes]) -> None:
    for payload in PAYLOADS:
        assert decode(b"".join(encode_chunks([payload], coding, length=len(payload)))) == payload


def at_level(payload: bytes, coding: str, level: int) -> bytes:
    """Code by the compressors themselves, the payload's length being known to them."""
    if coding == "br":
        compressor = brotli.Compressor(quality=level)
        return compressor.process(payload) + compressor.finish()
    options = {zstd.CompressionParameter.compression_level: level, zstd.CompressionParameter.window_log: 23}
    compressor = zstd.ZstdCompressor(options=options)
    compressor.set_pledged_input_size(len(payload))
    return compressor.compress(payload) + compressor.flush()


@pytest.mark.parametrize(("coding", "best", "quick"), [("br", 11, 9), ("zstd", 19, 12)])
def test_long_payloads_use_a_faster_level(coding: str, best: int, quick: int) -> None:
    words = b" ".join(Random(3).choices([b"to", b"be", b"or", b"not", b"that", b"is", b"the", b"question"], k=10_000))
    for length, level, other in ((1 << 20, best, quick), ((1 << 20) + 1, quick, best)):
        payload = words.ljust(length)
        written = b"".join(encode_chunks([payload], coding, length=length))
        assert written == at_level(payload, coding, level)
        assert written != at_level(payload, coding, other)


@pytest.mark.parametrize("coding", ENCODE)
@pytest.mark.parametrize("payload", PAYLOADS[1:], ids=len)
def test_we_read_codings_of_other_encoders(coding: str, payload: bytes) -> None:
    assert b"".join(decode_chunks([ENCODE[coding](payload)], coding)) == payload


def test_gzip_contains_no_time_and_no_name() -> None:
    head = b"".join(encode_chunks([b"hello"], "gzip", length=5))[:10]
    assert head[:4] == b"\x1f\x8b\x08\x00"  # no flags: no name
    assert head[4:8] == b"\0\0\0\0"  # no time


def test_small_zstd_frame_declares_a_small_window() -> None:
    written = b"".join(encode_chunks([b"hello " * 100], "zstd", length=600))
    limit = {zstd.DecompressionParameter.window_log_max: 10}
    assert zstd.ZstdDecompressor(options=limit).decompress(written) == b"hello " * 100


def test_zstd_window_above_8_mb_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 25, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    written = compressor.compress(NOISE) + compressor.flush()
    with pytest.raises(DecodingError):
        list(decode_chunks([written], "zstd"))


def test_several_members_are_decoded_and_trailing_junk_is_ignored() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    for size in (1, 11, 1_000):
        assert b"".join(decode_chunks(pieces(members, size), "gzip")) == b"one two"
        assert b"".join(decode_chunks(pieces(members + b"\0" * 100, size), "gzip")) == b"one two"
        assert b"".join(decode_chunks(pieces(zstd.compress(b"a") + zstd.compress(b"b"), size), "zstd")) == b"ab"
        assert b"".join(decode_chunks(pieces(zlib.compress(b"one") + b"junk", size), "deflate")) == b"one"


def test_raw_deflate_is_decoded() -> None:
    assert b"".join(decode_chunks([raw_deflate(b"hello " * 50)], "deflate")) == b"hello " * 50


def test_output_left_after_the_last_input_is_yielded() -> None:
    for length in range(65_530, 65_550):
        assert b"".join(decode_chunks([raw_deflate(b"z" * length)], "deflate")) == b"z" * length


@pytest.mark.parametrize("coding", DECODERS)
def test_uncoded_bytes_are_yielded_unchanged(coding: str) -> None:
    page = b"<!DOCTYPE html><title>plain</title>" * 10_000
    assert b"".join(decode_chunks(pieces(page, 65_536), coding)) == page
    assert b"".join(decode_chunks([], coding)) == b""
    assert b"".join(decode_chunks([b"", b""], coding)) == b""


def test_coding_is_recognized_in_single_bytes() -> None:
    for coding, encode in ENCODE.items():
        written = encode(b"hello " * 2_000)
        parts = [part for byte in pieces(written, 1) for part in (b"", byte)]
        assert b"".join(decode_chunks(parts, coding)) == b"hello " * 2_000


@pytest.mark.parametrize(("coding", "damage"), [("gzip", -8), ("zstd", 6)])
def test_small_damaged_body_is_an_error(coding: str, damage: int) -> None:
    written = bytearray(ENCODE[coding](b"hello"))
    written[damage] ^= 0xFF
    with pytest.raises(DecodingError):
        list(decode_chunks([bytes(written)], coding))


@pytest.mark.parametrize("coding", ENCODE)
def test_truncated_body_is_an_error(coding: str) -> None:
    written = ENCODE[coding](NOISE)
    with pytest.raises(DecodingError, match="cut short"):
        list(decode_chunks(pieces(written[:-20], 65_536), coding))


@pytest.mark.parametrize("coding", ENCODE)
def test_damage_after_the_beginning_is_reported(coding: str) -> None:
    written = bytearray(ENCODE[coding](bytes(Random(2).choices(b"abcdefgh", k=600_000))))
    written[150_000:] = b"\0" * 50_000  # a coding without a checksum notices no less
    with pytest.raises(DecodingError):
        list(decode_chunks(pieces(bytes(written), 65_536), coding))


@pytest.mark.parametrize("coding", ["deflate", "", "GZIP", "identity", "nonsense"])
def test_supported_encoders_are_gzip_br_and_zstd(coding: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one of gzip, br, zstd"):
        require_coding(coding)


@pytest.mark.parametrize(("extra", "modules"), [("br", {"brotli"}), ("zstd", {"backports", "compression"})])
def test_missing_codec_names_its_extra(extra: str, modules: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *args: Any, **options: Any) -> Any:
        if name in modules:
            raise ImportError(name)
        return real(name, *args, **options)

    written = ENCODE[extra](b"x")
    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=rf"\.\[{extra}\]"):
        require_coding(extra)
    with pytest.raises(MissingExtra, match=rf"\.\[{extra}\]"):
        list(decode_chunks([written], extra))
    require_coding("gzip")


URL = "https://example.com/"
TEXT = b"".join(b"%d bottles of beer on the wall\n" % number for number in range(2_000))
DECODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": brotli.decompress,
    "zstd": zstd.decompress,
    "identity": bytes,
}


def page(payload: Any = TEXT, *, status: int = 200, **headers: str) -> Exchange:
    fields = {"content-type": "text/html"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Exchange(URL, status, fields, payload)


def body(exchange: Exchange) -> bytes:
    return b"".join(map(bytes, payload_chunks(prepare_payload(exchange.payload, None, Spool)[0])))


def compressed(*exchanges: Exchange, codings: Iterable[str] = tuple(ENCODERS)) -> list[Exchange]:
    return list(compress(exchanges, list(codings)))


@pytest.mark.parametrize("kind", ["bytes", "file", "piece", "chunks"])
def test_each_kind_of_payload_gets_all_variants(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    payload: Any = {
        "bytes": TEXT,
        "file": path,
        "piece": Spool().append([TEXT]),
        "chunks": iter([TEXT[:99], TEXT[99:]]),
    }
    found = compressed(page(payload[kind]))
    keys = [exchange.variant_key for exchange in found]
    assert keys[0] == "identity"
    assert sorted(map(str, keys)) == ["br", "gzip", "identity", "zstd"]
    for exchange in found:
        key = str(exchange.variant_key)
        assert DECODE[key](body(exchange)) == TEXT
        assert exchange.headers.get("content-encoding", "identity") == key
        assert exchange.headers["variant-key"] == key
        assert exchange.headers["vary"] == "Accept-Encoding"
        assert exchange.headers["variants"] == exchange.variants
        assert exchange.headers["content-type"] == "text/html"


def test_variants_are_ordered_by_size_with_identity_last() -> None:
    found = compressed(page())
    by_length = sorted((len(body(exchange)), str(exchange.variant_key)) for exchange in found)
    assert {exchange.variants for exchange in found} == {";".join(["Accept-Encoding", *(key for _, key in by_length)])}
    assert by_length[-1][1] == "identity"


def test_variant_must_save_a_tenth_and_64_bytes() -> None:
    noise = Random(1).randbytes(3_000)
    mixed = noise + bytes(500)  # a seventh of it can go
    assert [exchange.variant_key for exchange in compressed(page(noise))] == [None]
    assert len(compressed(page(mixed))) == 4
    assert compressed(page(noise))[0].headers == {"content-type": "text/html"}
    small = bytes(60)
    assert compressed(page(small)) == [page(small)]
    assert compressed(page(b"")) == [page(b"")]
    assert len(compressed(page(bytes(200)))) == 4


def test_useless_coding_is_not_in_the_variants_value(monkeypatch: pytest.MonkeyPatch) -> None:
    class Useless:
        def compress(self, data: bytes) -> bytes:
            return bytes(data) * 2

        def flush(self) -> bytes:
            return b""

    monkeypatch.setitem(ENCODERS, "br", lambda _: Useless())  # type: ignore[arg-type]
    found = compressed(page(), codings=["br", "gzip"])
    assert {exchange.variants for exchange in found} == {"Accept-Encoding;gzip;identity"}
    assert [exchange.variant_key for exchange in found] == ["identity", "gzip"]


@pytest.mark.parametrize("asked", [["gzip"], ["br", "gzip", "br"], []])
def test_only_requested_codings_are_written(asked: list[str]) -> None:
    keys = {exchange.variant_key for exchange in compressed(page(), codings=asked)}
    assert keys == ({"identity", *asked} if asked else {None})


def test_chunks_of_an_uncompressed_response_are_kept() -> None:
    (exchange,) = compressed(page(iter([b"small"])))
    assert body(exchange) == b"small"


def test_responses_with_variants_or_a_coding_are_unchanged() -> None:
    negotiated = Exchange(URL, 200, {"content-type": "text/html"}, TEXT, "Accept-Language;en", "en")
    coded = page(content_encoding="gzip")
    assert compressed(negotiated, coded) == [negotiated, coded]


def test_variant_has_weak_etag_and_no_digest() -> None:
    found = compressed(page(etag='"x"', repr_digest="sha-256=:x:", vary="Accept-Language"), codings=["gzip"])
    plain, coded = found
    assert (plain.headers["etag"], coded.headers["etag"]) == ('"x"', 'W/"x"')
    assert "repr-digest" in plain.headers
    assert "repr-digest" not in coded.headers
    assert plain.headers["vary"] == coded.headers["vary"] == "Accept-Language, Accept-Encoding"


def test_vary_is_extended_once() -> None:
    assert compressed(page(vary="ACCEPT-Encoding"))[0].headers["vary"] == "ACCEPT-Encoding"


@pytest.mark.parametrize(
    ("content_type", "can"),
    [
        ("text/html; charset=utf-8", True),
        ("Text/CSS", True),
        ("application/json", True),
        ("application/ld+json", True),
        ("image/svg+xml", True),
        ("application/wasm", True),
        ("application/manifest+json", True),
        ("font/ttf", True),
        ("font/woff2", False),
        ("image/png", False),
        ("video/mp4", False),
        ("application/zip", False),
        ("application/octet-stream", False),
        ("", False),
    ],
)
def test_media_type_decides_whether_to_compress(content_type: str, can: bool) -> None:
    assert is_compressible(200, {"content-type": content_type}) == can


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (206, {}),
        (200, {"content-encoding": "br"}),
        (200, {"cache-control": "public, No-Transform"}),
        (200, {"vary": "*"}),
    ],
)
def test_partial_and_no_transform_responses_are_not_compressed(status: int, headers: dict[str, str]) -> None:
    assert is_compressible(200, {"content-type": "text/html"})
    assert not is_compressible(status, {"content-type": "text/html", **headers})


def test_compression_is_deterministic() -> None:
    assert [body(exchange) for exchange in compressed(page())] == [body(exchange) for exchange in compressed(page())]


def test_large_file_is_compressed_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT * 50)
    seen: list[int] = []
    keep = Spool.append

    def watched(self: Spool, parts: Iterable[bytes]) -> Any:
        def each() -> Any:
            for part in parts:
                seen.append(len(part))
                yield part

        return keep(self, each())

    monkeypatch.setattr(Spool, "append", watched)
    compressed(page(path))
    assert max(seen) < 1 << 20


def test_unknown_coding_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="'deflate' is not a supported coding; expected one of gzip, br, zstd"):
        compress([], ["gzip", "deflate"])


@pytest.mark.parametrize(("version", "refused"), [("b1", False), ("draft-01", False), ("b2", True)])
def test_compression_for_b2_is_refused(version: Version, refused: bool) -> None:
    if refused:
        with pytest.raises(ConfigurationError, match="b2 does not have variants"):
            compress([], ["gzip"], version=version)
    else:
        compress([], ["gzip"], version=version)
    assert list(compress([page()], [], version=version)) == [page()]


def test_removed_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match=r"gone\.txt"):
        compressed(page(tmp_path / "gone.txt"))
