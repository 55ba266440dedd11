import gzip
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import brotli
import pytest

from headgate.bundle.files.payloads import Spool, payload_chunks, prepare_payload
from headgate.bundle.model import Exchange, Version
from headgate.bundle.sources.codings import ENCODERS, compress, is_compressible
from headgate.errors import ConfigurationError, HeadgateError

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
