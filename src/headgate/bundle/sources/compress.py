"""Add variants on Accept-Encoding: each response plain, and in the content codings that make it smaller."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.bundle.files.payloads import PreparedPayload, payload_chunks, prepare_payload
from headgate.bundle.files.spool import Spool, SpooledPayload
from headgate.bundle.model import Exchange, Version
from headgate.bundle.sources.codings import encode_chunks, require_coding
from headgate.bundle.sources.header_policy import essence, with_content_encoding
from headgate.bundle.variants import Axis, write_variants
from headgate.errors import ConfigurationError

AXIS: Final = "Accept-Encoding"
PLAIN: Final = "identity"

_MIN_SAVED: Final = 64
"""Minimum bytes that a variant must save: its headers and index entry make the bundle longer."""
_MIN_SHARE: Final = 10
"""The part of the payload that a variant must save, as a divisor."""
# fmt: off
_COMPRESSIBLE: Final = frozenset({
    "application/dash+xml", "application/ecmascript", "application/javascript", "application/json", "application/rtf",
    "application/sql", "application/toml", "application/vnd.apple.mpegurl", "application/vnd.ms-fontobject",
    "application/wasm", "application/x-javascript", "application/x-subrip", "application/xml", "application/yaml",
    "font/collection", "font/otf", "font/sfnt", "font/ttf", "image/bmp", "image/vnd.microsoft.icon", "image/x-icon",
    "model/gltf-binary",
})
# fmt: on
"""Media types, besides text, whose formats are not compressed."""
_SUFFIXES: Final = ("+json", "+text", "+xml")


class _TooLongError(Exception):
    """A coding saves too little."""


def compress(exchanges: Iterable[Exchange], codings: Sequence[str], *, version: Version = "b1") -> Iterator[Exchange]:
    """Yield the exchanges, and after each one its variants in those of `codings` (gzip, br, zstd) that save enough.

    A variant must save a tenth and 64 bytes, of text or of another type that is not compressed. The Variants value
    names the codings of its own URL only, the smallest first and `identity` last, so every key has a response.
    Responses with a content coding, with variants or with `no-transform` stay as they are.

    Payloads are encoded into a temporary file. Raises `ConfigurationError` at once for an unknown coding and for b2,
    which does not have variants; `MissingExtra` for br and zstd without their extras.
    """
    wanted = tuple(dict.fromkeys(codings))
    for coding in wanted:
        require_coding(coding)
    if wanted and version == "b2":
        raise ConfigurationError("b2 does not have variants; write b1, or do not compress")
    return _compressed(exchanges, wanted)


def is_compressible(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether a response is of a type that can be compressed, and may be."""
    directives = headers.get("cache-control", "").lower()
    if status == 206 or "content-encoding" in headers or "no-transform" in directives or headers.get("vary") == "*":
        return False
    kind = essence(headers.get("content-type", ""))
    return kind.startswith("text/") or kind in _COMPRESSIBLE or kind.endswith(_SUFFIXES)


def _compressed(exchanges: Iterable[Exchange], codings: Sequence[str]) -> Iterator[Exchange]:
    spool = Spool()
    for exchange in exchanges:
        if exchange.variants is not None or not is_compressible(exchange.status, exchange.headers):
            yield exchange
            continue
        payload, length = prepare_payload(exchange.payload, None, lambda: spool)
        pieces = _pieces(payload, length, codings, spool)
        if isinstance(payload, SpooledPayload):
            # Chunks can be iterated once, and were.
            exchange = msgspec.structs.replace(exchange, payload=payload)  # noqa: PLW2901 - the same one, kept
        yield from _variants(exchange, pieces) if pieces else (exchange,)


def _pieces(payload: PreparedPayload, length: int, codings: Sequence[str], spool: Spool) -> dict[str, SpooledPayload]:
    """Encode a payload, and return the codings that save enough, the smallest first."""
    most = length - max(_MIN_SAVED, length // _MIN_SHARE)
    pieces: dict[str, SpooledPayload] = {}
    for coding in codings if most > 0 else ():
        try:
            pieces[coding] = spool.append(_at_most(most, encode_chunks(payload_chunks(payload), coding, length=length)))
        except _TooLongError:
            continue
    return dict(sorted(pieces.items(), key=lambda item: item[1].length))


def _at_most(length: int, parts: Iterator[bytes]) -> Iterator[bytes]:
    for part in parts:
        length -= len(part)
        if length < 0:
            raise _TooLongError
        yield part


def _variants(exchange: Exchange, pieces: Mapping[str, SpooledPayload]) -> Iterator[Exchange]:
    """Yield the variants of an exchange."""
    variants = write_variants((Axis(AXIS, (*pieces, PLAIN)),))
    headers = {**exchange.headers, "vary": _varying(exchange.headers.get("vary", "")), "variants": variants}
    yield _variant(exchange, {**headers, "variant-key": PLAIN}, variants, PLAIN)
    for coding, piece in pieces.items():
        coded = msgspec.structs.replace(exchange, payload=piece)
        yield _variant(coded, with_content_encoding({**headers, "variant-key": coding}, coding), variants, coding)


def _variant(exchange: Exchange, headers: Mapping[str, str], variants: str, key: str) -> Exchange:
    return msgspec.structs.replace(exchange, headers=headers, variants=variants, variant_key=key)


def _varying(vary: str) -> str:
    names = [name.strip() for name in vary.split(",") if name.strip()]
    return ", ".join(names if AXIS.lower() in map(str.lower, names) else [*names, AXIS])
