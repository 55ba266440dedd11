import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest

from headgate.bundle.sources.codings import DECODERS, DecodingError, decode_chunks, limit_length, parse_codings
from headgate.bundle.sources.selection import SkipExchange

NOISE = Random(1).randbytes(200_000)
PAYLOADS = [b"", b"a", b"hello " * 1_000, NOISE, b"z" * 3_000_000]


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODE: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("coding", ENCODE)
@pytest.mark.parametrize("payload", PAYLOADS, ids=len)
def test_bodies_are_decoded_in_bounded_pieces(coding: str, payload: bytes) -> None:
    written = ENCODE[coding](payload)
    for size in (1, 7, 65_536, 1 << 24):
        if size * 20_000 > len(written):
            given = list(decode_chunks(pieces(written, size), coding))
            assert b"".join(given) == payload
            assert max(map(len, given), default=0) <= 1 << 17


def test_several_members_are_decoded_and_trailing_junk_is_ignored() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    for size in (1, 11, 1_000):
        assert b"".join(decode_chunks(pieces(members, size), "gzip")) == b"one two"
        assert b"".join(decode_chunks(pieces(members + b"\0" * 100, size), "x-gzip")) == b"one two"
        assert b"".join(decode_chunks(pieces(zlib.compress(b"one") + b"junk", size), "deflate")) == b"one"


def test_raw_deflate_is_decoded_to_the_last_byte() -> None:
    for length in range(65_530, 65_550):
        assert b"".join(decode_chunks([raw_deflate(b"z" * length)], "deflate")) == b"z" * length


@pytest.mark.parametrize("coding", sorted(DECODERS))
def test_empty_body_stays_empty(coding: str) -> None:
    assert b"".join(decode_chunks([], coding)) == b""
    assert b"".join(decode_chunks([b"", b""], coding)) == b""


@pytest.mark.parametrize(("coding", "damage"), [("gzip", 0), ("gzip", -8), ("deflate", 1)])
def test_damaged_body_is_an_error(coding: str, damage: int) -> None:
    written = bytearray(ENCODE[coding](b"hello"))
    written[damage] ^= 0xFF
    with pytest.raises(DecodingError, match="damaged"):
        list(decode_chunks([bytes(written)], coding))


@pytest.mark.parametrize("coding", ENCODE)
def test_truncated_body_is_an_error(coding: str) -> None:
    written = ENCODE[coding](NOISE)
    with pytest.raises(DecodingError, match="cut short"):
        list(decode_chunks(pieces(written[:-20], 65_536), coding))


def test_codings_are_listed_in_the_order_of_application() -> None:
    assert parse_codings(" GZip ,, br, Identity") == ["gzip", "br"]
    assert parse_codings("") == []


def test_body_longer_than_the_limit_is_refused() -> None:
    assert list(limit_length([b"ab", b"c"], 3)) == [b"ab", b"c"]
    with pytest.raises(SkipExchange, match="more than 2 bytes"):
        list(limit_length([b"ab", b"c"], 2))
