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
def test_what_is_coded_decodes_to_itself_little_by_little(coding: str, payload: bytes) -> None:
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
def test_others_read_what_is_coded(coding: str, decode: Callable[[bytes], bytes]) -> None:
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
def test_what_is_long_is_coded_quickly_and_all_else_as_well_as_can_be(coding: str, best: int, quick: int) -> None:
    words = b" ".join(Random(3).choices([b"to", b"be", b"or", b"not", b"that", b"is", b"the", b"question"], k=10_000))
    for length, level, other in ((1 << 20, best, quick), ((1 << 20) + 1, quick, best)):
        payload = words.ljust(length)
        written = b"".join(encode_chunks([payload], coding, length=length))
        assert written == at_level(payload, coding, level)
        assert written != at_level(payload, coding, other)


@pytest.mark.parametrize("coding", ENCODE)
@pytest.mark.parametrize("payload", PAYLOADS[1:], ids=len)
def test_what_others_code_is_read(coding: str, payload: bytes) -> None:
    assert b"".join(decode_chunks([ENCODE[coding](payload)], coding)) == payload


def test_the_same_bytes_give_the_same_gzip_without_a_time_or_a_name() -> None:
    head = b"".join(encode_chunks([b"hello"], "gzip", length=5))[:10]
    assert head[:4] == b"\x1f\x8b\x08\x00"  # no flags: no name
    assert head[4:8] == b"\0\0\0\0"  # no time


def test_a_small_zstd_asks_for_a_small_window() -> None:
    written = b"".join(encode_chunks([b"hello " * 100], "zstd", length=600))
    limit = {zstd.DecompressionParameter.window_log_max: 10}
    assert zstd.ZstdDecompressor(options=limit).decompress(written) == b"hello " * 100


def test_a_window_that_browsers_refuse_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 25, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    written = compressor.compress(NOISE) + compressor.flush()
    with pytest.raises(DecodingError):
        list(decode_chunks([written], "zstd"))


def test_members_and_frames_follow_one_another_and_junk_does_not_count() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    for size in (1, 11, 1_000):
        assert b"".join(decode_chunks(pieces(members, size), "gzip")) == b"one two"
        assert b"".join(decode_chunks(pieces(members + b"\0" * 100, size), "gzip")) == b"one two"
        assert b"".join(decode_chunks(pieces(zstd.compress(b"a") + zstd.compress(b"b"), size), "zstd")) == b"ab"
        assert b"".join(decode_chunks(pieces(zlib.compress(b"one") + b"junk", size), "deflate")) == b"one"


def test_deflate_may_come_without_its_wrapper() -> None:
    assert b"".join(decode_chunks([raw_deflate(b"hello " * 50)], "deflate")) == b"hello " * 50


def test_the_last_bytes_are_given_out_though_all_was_taken_in() -> None:
    for length in range(65_530, 65_550):
        assert b"".join(decode_chunks([raw_deflate(b"z" * length)], "deflate")) == b"z" * length


@pytest.mark.parametrize("coding", DECODERS)
def test_what_is_not_coded_after_all_is_as_it_is(coding: str) -> None:
    page = b"<!DOCTYPE html><title>plain</title>" * 10_000
    assert b"".join(decode_chunks(pieces(page, 65_536), coding)) == page
    assert b"".join(decode_chunks([], coding)) == b""
    assert b"".join(decode_chunks([b"", b""], coding)) == b""


def test_the_beginning_may_come_byte_by_byte() -> None:
    for coding, encode in ENCODE.items():
        written = encode(b"hello " * 2_000)
        parts = [part for byte in pieces(written, 1) for part in (b"", byte)]
        assert b"".join(decode_chunks(parts, coding)) == b"hello " * 2_000


@pytest.mark.parametrize(("coding", "damage"), [("gzip", -8), ("zstd", 6)])
def test_what_is_small_and_damaged_is_not_taken_for_plain(coding: str, damage: int) -> None:
    written = bytearray(ENCODE[coding](b"hello"))
    written[damage] ^= 0xFF
    with pytest.raises(DecodingError):
        list(decode_chunks([bytes(written)], coding))


@pytest.mark.parametrize("coding", ENCODE)
def test_what_is_cut_short_is_not_taken_for_the_whole(coding: str) -> None:
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
def test_only_three_codings_are_written(coding: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one of gzip, br, zstd"):
        require_coding(coding)


@pytest.mark.parametrize(("extra", "modules"), [("br", {"brotli"}), ("zstd", {"backports", "compression"})])
def test_a_coding_that_is_not_installed_names_its_extra(
    extra: str, modules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

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
def test_every_key_has_its_response_whatever_the_payload_comes_in(kind: str, tmp_path: Path) -> None:
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


def test_the_smallest_comes_first_and_the_plain_one_last() -> None:
    found = compressed(page())
    by_length = sorted((len(body(exchange)), str(exchange.variant_key)) for exchange in found)
    assert {exchange.variants for exchange in found} == {";".join(["Accept-Encoding", *(key for _, key in by_length)])}
    assert by_length[-1][1] == "identity"


def test_only_codings_that_are_worth_it_are_there() -> None:
    noise = Random(1).randbytes(3_000)
    mixed = noise + bytes(500)  # a seventh of it can go
    assert [exchange.variant_key for exchange in compressed(page(noise))] == [None]
    assert len(compressed(page(mixed))) == 4
    assert compressed(page(noise))[0].headers == {"content-type": "text/html"}
    small = bytes(60)
    assert compressed(page(small)) == [page(small)]
    assert compressed(page(b"")) == [page(b"")]
    assert len(compressed(page(bytes(200)))) == 4


def test_a_coding_that_does_not_help_this_url_is_not_among_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_only_the_codings_asked_for_are_written(asked: list[str]) -> None:
    keys = {exchange.variant_key for exchange in compressed(page(), codings=asked)}
    assert keys == ({"identity", *asked} if asked else {None})


def test_chunks_that_were_looked_at_are_still_there() -> None:
    (exchange,) = compressed(page(iter([b"small"])))
    assert body(exchange) == b"small"


def test_what_has_variants_or_a_coding_is_left_as_it_is() -> None:
    negotiated = Exchange(URL, 200, {"content-type": "text/html"}, TEXT, "Accept-Language;en", "en")
    coded = page(content_encoding="gzip")
    assert compressed(negotiated, coded) == [negotiated, coded]


def test_a_stored_coding_is_another_representation() -> None:
    found = compressed(page(etag='"x"', repr_digest="sha-256=:x:", vary="Accept-Language"), codings=["gzip"])
    plain, coded = found
    assert (plain.headers["etag"], coded.headers["etag"]) == ('"x"', 'W/"x"')
    assert "repr-digest" in plain.headers
    assert "repr-digest" not in coded.headers
    assert plain.headers["vary"] == coded.headers["vary"] == "Accept-Language, Accept-Encoding"


def test_vary_names_a_field_once() -> None:
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
def test_the_type_says_whether_to_try(content_type: str, can: bool) -> None:
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
def test_some_responses_are_not_to_be_touched(status: int, headers: dict[str, str]) -> None:
    assert is_compressible(200, {"content-type": "text/html"})
    assert not is_compressible(status, {"content-type": "text/html", **headers})


def test_the_same_bytes_come_out_every_time() -> None:
    assert [body(exchange) for exchange in compressed(page())] == [body(exchange) for exchange in compressed(page())]


def test_a_large_file_is_never_in_memory_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_b2_bundle_has_no_variants(version: Version, refused: bool) -> None:
    if refused:
        with pytest.raises(ConfigurationError, match="b2 does not have variants"):
            compress([], ["gzip"], version=version)
    else:
        compress([], ["gzip"], version=version)
    assert list(compress([page()], [], version=version)) == [page()]


def test_removed_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match=r"gone\.txt"):
        compressed(page(tmp_path / "gone.txt"))
